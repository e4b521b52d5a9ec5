"""Ask the torch installed here how it reads strings of PYTORCH_CUDA_ALLOC_CONF, and write its answers down.

    python conf.py strings > strings.json            # the questions: fixed ones, and some drawn with a fixed seed
    python conf.py answers strings.json > 2.15.0.json
    python conf.py answers strings.json 2.15.0.json > 2.14.1.json               # only what differs from that file

Needs a CUDA device, or a library that stands in for one. A question is a pair of strings: one that is parsed
first, to have something to carry over, and the one asked about. Each is asked in a process of its own,
forked before anything was set. An answer is the error text or, for what was accepted, the settings afterwards
that differ from the defaults, and the warnings.

What a snapshot does not show is read out of the settings object, laid out as in the headers of the wheels.
"""

import ctypes
import json
import os
import random
import re
import sys
import tempfile

BEFORE = [
    "",
    "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5,roundup_power2_divisions:8",
]
LATER = {  # added to the second string where the release has it
    6: "max_non_split_rounding_mb:40,release_lock_on_cudamalloc:True",
    10: "per_process_memory_fraction:0.5,graph_capture_record_stream_reuse:True",
    11: "large_segment_size_mb:36",
    12: "throw_on_cudamalloc_oom:True",
    15: "expandable_segments_reserve:0.5",
}

FIXED = """
[|]|:|,|,,|,max_split_size_mb:64|max_split_size_mb:64,|max_split_size_mb:64,,expandable_segments:True
max_split_size_mb:|max_split_size_mb|max_split_size_mb:,|max_split_size_mb:[64]|max_split_size_mb,64
max_split_size_mb:x
max_split_size_mb:20|max_split_size_mb:21|max_split_size_mb:19|max_split_size_mb:0|max_split_size_mb:-1
max_split_size_mb:+30
max_split_size_mb:25abc|max_split_size_mb:30.9|max_split_size_mb:0x40|max_split_size_mb:\t30|max_split_size_mb\t:30
max_ split_size_mb:3 0|max_split_size_mb:2147483647|max_split_size_mb:2147483648|max_split_size_mb:-2147483649
max_split_size_mb:18446744073709551615|max_split_size_mb:18446744073709551616|max_split_size_mb:64:128
Max_split_size_mb:64
max_split_size_mb:64,max_split_size_mb:128|max_split_size:64|max_non_split_rounding_mb:20|max_non_split_rounding_mb:21
max_non_split_rounding_mb:|max_non_split_rounding_mb:x|max_non_split_rounding_mb:-1
large_segment_size_mb:10|large_segment_size_mb:11|large_segment_size_mb:-1|large_segment_size_mb:x
large_segment_size_mb:
large_segment_size_mb:17592186044416|large_segment_size_mb:30,large_segment_size_mb:50|large_segment_size_mb:[30]
large_segment_size_mb:30,max_split_size_mb:29|max_split_size_mb:29,large_segment_size_mb:30|large_segment_size_mb
large_segment_size_mb:40,max_split_size_mb:40|foo:1,large_segment_size_mb:5|backend:large_segment_size_mb
expandable_segments:large_segment_size_mb:30|foo:[large_segment_size_mb:x]|max_split_size_mb,large_segment_size_mb:5
garbage_collection_threshold:0|garbage_collection_threshold:1|garbage_collection_threshold:0.999
garbage_collection_threshold:-0.5
garbage_collection_threshold:nan|garbage_collection_threshold:inf|garbage_collection_threshold:.5
garbage_collection_threshold:5e-1x
garbage_collection_threshold:0x1p-1|garbage_collection_threshold:1e-400|garbage_collection_threshold:1e-310
garbage_collection_threshold:.
garbage_collection_threshold:0.5e|garbage_collection_threshold:|garbage_collection_threshold:0x.8
garbage_collection_threshold:0x
garbage_collection_threshold:nan(1)|garbage_collection_threshold:-nan|garbage_collection_threshold:infinit
garbage_collection_threshold:2.5e-1
roundup_power2_divisions:4|roundup_power2_divisions:1|roundup_power2_divisions:0|roundup_power2_divisions:3
roundup_power2_divisions:-4
roundup_power2_divisions:|roundup_power2_divisions:[|roundup_power2_divisions:[]|roundup_power2_divisions:[>:4]
roundup_power2_divisions:[256:1,512:2,1024:4,>:8]|roundup_power2_divisions:[256:1,>:4]
roundup_power2_divisions:[>:4,256:1]
roundup_power2_divisions:[4:4,2:2,>:1]|roundup_power2_divisions:[32768:4,>:2]|roundup_power2_divisions:[65536:4]
roundup_power2_divisions:[>:4,>:2]|roundup_power2_divisions:[256:0,>:2]|roundup_power2_divisions:[256:3]
roundup_power2_divisions:[3:4]
roundup_power2_divisions:[0:4]|roundup_power2_divisions:[x:4]|roundup_power2_divisions:[256:x]
roundup_power2_divisions:[256:1
roundup_power2_divisions:[256:1,|roundup_power2_divisions:[256|roundup_power2_divisions:[256:
roundup_power2_divisions:[256:1,]
roundup_power2_divisions:[256,1]|roundup_power2_divisions:[256:1:512:2]|roundup_power2_divisions:[256:1,,512:2]
roundup_power2_divisions:[256:1 512:2]|roundup_power2_divisions:[256:1],max_split_size_mb:64
roundup_power2_divisions:[256:1]max_split_size_mb:64
roundup_power2_divisions:[-1:4]|roundup_power2_divisions:[9223372036854775808:4]
roundup_power2_divisions:[256:2147483648]|roundup_power2_divisions:[:4]
roundup_power2_divisions:[[256:4]|roundup_power2_divisions:1073741824
expandable_segments:True|expandable_segments:False|expandable_segments:true|expandable_segments:1|expandable_segments:
expandable_segments|expandable_segments:True:False|expandable_segments:[True]|expandable_segments,True
expandable_segments:Tr ue
backend:native|backend:foo|backend:|backend:native,max_split_size_mb:64|release_lock_on_cudamalloc:True
release_lock_on_cudamalloc:x
release_lock_on_hipmalloc:True|release_lock_on_cudamalloc:|graph_capture_record_stream_reuse:True
graph_capture_record_stream_reuse:x
graph_capture_record_stream_reuse:
per_process_memory_fraction:0|per_process_memory_fraction:1|per_process_memory_fraction:1.5
per_process_memory_fraction:-1
per_process_memory_fraction:nan|per_process_memory_fraction:0.25x|throw_on_cudamalloc_oom:True
throw_on_cudamalloc_oom:x
expandable_segments_reserve:0.25|expandable_segments_reserve:40G|expandable_segments_reserve:40g
expandable_segments_reserve:1e20G
expandable_segments_reserve:x|expandable_segments_reserve:0|expandable_segments_reserve:-1
expandable_segments_reserve:G
expandable_segments_reserve:inf|expandable_segments_reserve:0.5x|expandable_segments_reserve:0x1p-1
expandable_segments_reserve:1.5
expandable_segments_reserve:1e-400|expandable_segments_reserve:0.5 G|expandable_segments_reserve:
expandable_segments_reserve:[a:1]
expandable_segments_reserve:+0.5|expandable_segments_reserve:.5|expandable_segments_reserve:5.
expandable_segments_reserve:1e
expandable_segments_reserve:1e-310|expandable_segments_reserve:nan|expandable_segments_reserve:0.5GG
expandable_segments_reserve:1e400G
expandable_segments_reserve:0.25,expandable_segments_reserve:x|expandable_segments_reserve_by_class:[a:1,b:2G]
expandable_segments_reserve_by_class:[a:x,b:2G]|expandable_segments_reserve_by_class:[]
expandable_segments_reserve_by_class:a
expandable_segments_reserve_by_class:[a]|expandable_segments_reserve_by_class:[a:1
expandable_segments_reserve_by_class:[a:1:b:2]
expandable_segments_reserve_by_class:[a:1 b:2]|expandable_segments_reserve_by_class:[a:1,]
expandable_segments_reserve_by_class:[a,1,b,2]
expandable_segments_reserve_by_class:[a:1],max_split_size_mb:64|expandable_segments_reserve_by_class:a:1
expandable_segments_reserve_by_class:[,a:1]
expandable_segments_reserve_by_class:|expandable_segments_reserve_by_class:[|expandable_segments_reserve_by_class:[a:
expandable_segments_reserve_by_class:[a:1,
pinned_use_cuda_host_register:True|pinned_use_cuda_host_register:x|pinned_use_cuda_host_register:
pinned_use_hip_host_register:True
pinned_use_background_threads:True|pinned_use_background_threads:x|pinned_use_background_threads:
pinned_num_register_threads:8|pinned_num_register_threads:3|pinned_num_register_threads:0
pinned_num_register_threads:256
pinned_num_register_threads:|pinned_num_register_threads:x|pinned_num_register_threads:-1
pinned_num_register_threads:128
pinned_reserve_segment_size_mb:0|pinned_reserve_segment_size_mb:8|pinned_reserve_segment_size_mb:x
pinned_reserve_segment_size_mb:-1
pinned_max_round_threshold_mb:0|pinned_max_round_threshold_mb:x|pinned_max_cached_size_mb:64
pinned_max_cached_size_mb:-1
pinned_free_catch_all:True|pinned_free_catch_all:x
foo:1|foo|foo:|foo:[1|foo:[1,2],max_split_size_mb:64|max_split_size_mb:64,foo:1|backend:foo,max_split_size_mb:1
roundup_bypass_threshold_mb:64
"""
NUMBERS = "0 1 2 4 8 19 20 21 32 64 128 256 1024 -1 x 3.5 40G 0.5".split()
WORDS = {
    "max_split_size_mb": NUMBERS,
    "max_non_split_rounding_mb": NUMBERS,
    "large_segment_size_mb": ["11", "20", "32", "40", "x"],
    "garbage_collection_threshold": ["0.1", "0.8", "0.95", "1e-1", "1", "x"],
    "expandable_segments": ["True", "False", "true", "1"],
    "roundup_power2_divisions": "1 2 16 [] [256:1,512:2,1024:4,>:8] [1:4,64:2,>:1] [64:8,256:4,>:0] 3 [64:8".split(),
    "backend": ["native", "cuda"],
    "release_lock_on_cudamalloc": ["True", "False", "yes"],
    "graph_capture_record_stream_reuse": ["True", "False"],
    "per_process_memory_fraction": ["0.5", "1.0", "2"],
    "throw_on_cudamalloc_oom": ["True", "False"],
    "expandable_segments_reserve": ["0.5", "2G", "x"],
    "expandable_segments_reserve_by_class": ["[a:0.5,b:2G]", "[a:x]"],
    "pinned_num_register_threads": ["4", "5"],
    "pinned_use_background_threads": ["True", "0"],
    "no_such_option": ["1", "[a:b]"],
}
OFTEN = ["max_split_size_mb", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions"]


def drawn(rng):
    keys = rng.choices([*OFTEN, rng.choice(list(WORDS))], k=rng.randint(1, 4))
    text = ",".join(f"{key}:{rng.choice(WORDS[key])}" for key in keys)
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        at = rng.randrange(len(text) + 1)
        cut = rng.choice([0, 0, 1])
        text = text[:at] + rng.choice([",", ":", "[", "]", " ", "\t", "0", "", ">"]) + text[at + cut :]
    return text


def strings(many):
    fixed = [text.replace("\\t", "\t") for line in FIXED.strip().splitlines() for text in line.split("|")]
    rng = random.Random(20261121)
    rows = [[0, ""], [1, ""]] + [[0, text] for text in fixed]
    seen = set(fixed)
    while len(rows) < len(fixed) + 2 + many:
        text = drawn(rng)
        if text not in seen:
            seen.add(text)
            rows.append([rng.randrange(2), text])
    return rows


def setter():
    import torch

    new = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    return new or torch._C._cuda_cudaCachingAllocator_set_allocator_settings


def hidden(minor):
    """The settings that no snapshot shows."""
    import torch

    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10{}.so")
    device = ctypes.CDLL(library.format("_cuda"))
    name = "_ZZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig8instanceEvE10s_instance"
    cuda = ctypes.c_void_p.in_dll(device, name).value

    def at(base, offset, kind):
        return kind.from_address(base + offset).value

    size, real, flag = ctypes.c_uint64, ctypes.c_double, ctypes.c_bool
    if minor < 10:
        return {"max_non_split_rounding": at(cuda, 8, size)}
    instance = ctypes.CDLL(library.format(""))._ZN3c1016CachingAllocator26AcceleratorAllocatorConfig8instanceEv
    instance.restype = ctypes.c_void_p
    shared = instance()
    found = {"max_non_split_rounding": at(shared, 8 if minor == 10 else 16, size)}
    found["per_process_memory_fraction"] = at(cuda, 24, real)
    if minor >= 11:
        found["large_segment_size"] = at(shared, 0, size)
    if minor >= 12:
        found["throw_on_cudamalloc_oom"] = at(cuda, 33, flag)
    if minor >= 15 and at(cuda, 56, flag):
        found["expandable_segments_reserve"] = ["fraction" if at(cuda, 40, flag) else "GiB", at(cuda, 48, real)]
    return found


DEFAULTS = {
    "max_split_size": -1,
    "max_non_split_rounding": 20 << 20,
    "large_segment_size": 20 << 20,
    "per_process_memory_fraction": 1.0,
    "garbage_collection_threshold": 0.0,
}
SHOWN = """max_split_size garbage_collection_threshold expandable_segments release_lock_on_cudamalloc
graph_capture_record_stream_reuse""".split()


def ask(before, text, minor):
    """In the child: [error or null, settings or null, warnings]."""
    import torch

    set_settings = setter()
    set_settings(before)
    log = tempfile.TemporaryFile()  # noqa: SIM115, the child ends with it
    os.dup2(log.fileno(), 2)
    try:
        set_settings(text)
    except Exception as error:
        words = str(error).split("\nException raised from")[0].rstrip("\n")
        words = re.sub(r".* INTERNAL ASSERT FAILED at .*, please report a bug to PyTorch\. ", "assert: ", words)
        return [f"{type(error).__name__}: {words}"]
    log.seek(0)
    warnings = re.findall(r"Warning: (.*) \(function ", log.read().decode())
    snapshot = torch.cuda.memory._snapshot()
    if "allocator_settings" not in snapshot:
        return [None, None]
    found = snapshot["allocator_settings"]
    settings = {name: found[name] for name in SHOWN if name in found}
    divisions = [found["roundup_power2_divisions"][str(1 << bucket)] for bucket in range(16)]
    if any(divisions):
        settings["roundup_power2_divisions"] = divisions
    if minor >= 6:
        settings.update(hidden(minor))
    settings = {name: value for name, value in settings.items() if value != DEFAULTS.get(name, False)}
    return [None, settings, warnings] if warnings else [None, settings]


def in_a_child(*question):
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            answer = ask(*question)
        except BaseException as error:
            answer = [f"recorder: {error!r}"]
        with os.fdopen(write, "w") as out:
            out.write(json.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else ["died"]


def answers(rows):
    import torch

    release = torch.__version__.split("+")[0]
    minor = int(release.split(".")[1])
    torch.zeros(1, device="cuda")
    befores = list(BEFORE)
    for since, text in LATER.items():
        if minor >= since:
            befores[1] += "," + text
    found = [in_a_child(befores[before], text, minor) for before, text in rows]
    return release, befores, found


def lines(rows):
    return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)


if __name__ == "__main__":
    if sys.argv[1] == "strings":
        print(f"[\n{lines(strings(100))}\n]")
    else:
        with open(sys.argv[2]) as file:
            release, befores, found = answers(json.load(file))
        like = None
        rows = list(enumerate(found))
        if len(sys.argv) > 3:
            with open(sys.argv[3]) as file:
                other = json.load(file)
            like = other["release"]
            known = dict(map(tuple, other["answers"]))
            rows = [row for row in rows if row[1] != known[row[0]]]
        head = {"release": release, "like": like, "before": befores}
        print(json.dumps(head)[:-1] + f', "answers": [\n{lines(rows)}\n]}}')
