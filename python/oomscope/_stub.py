"""Builds the stub of CUDA that `oomscope dry-run` runs programs over, for one installed torch.

    python _stub.py OUT_DIR [SOURCES]      builds for the torch of this interpreter, into OUT_DIR

The stub is C (the directory `stub` of the repository; a dry run has a copy beside this file). It has the entry points
whose answer matters. For every other that torch's own libraries ask for, and for all of the CUDA runtime, driver and
cuBLAS, one is generated here from the headers that come with torch's own packages: it does nothing, says that all is
well, and gives zero or a new object where something is to come out. What has no header and would give something out
fails, and is said by name.

`ready(torch_directory)` is what a dry run calls: it builds once per release of torch and of the stub, into
$XDG_CACHE_HOME/oomscope, or takes what is there. Needs Linux on x86-64 and a C compiler: `cc`, or the package `ziglang`.
"""

import glob
import hashlib
import importlib.util
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

# The library, and the names under which others look for it: CUDA's driver and its management library.
LIBRARY = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
# Whose symbols the stub has: all that touches a GPU, and what traces it (cupti), which crashes where there is none. The
# compiler for run-time compilation (nvrtc) needs none.
OURS = re.compile(r"(__cuda|cuda|cublas|cudnn|cupti|cusolver|cusparse|cufft|curand|nccl|cuFile|cu[A-Z])\w*$")
# What would give something out, were it there.
GIVES = re.compile(r"Get|Create|Query|ufferSize|Alloc|Import|Export|Heuristic")
# Headers whose every function is generated: extensions beside torch ask for more than torch does.
WHOLE = ("cuda.h", "cuda_runtime_api.h", "cublas_api.h", "cublasLt.h")
NUMBERS = re.compile(r"(unsigned|signed|int|long|short|char|size_t|u?int\d+_t|cuuint\d+_t)$")
COMPILERS = (
    "install a C compiler (Debian, Ubuntu: apt install gcc), or `pip install ziglang` into the program's environment"
)


class StubError(Exception):
    """One sentence: why there is no stub, and what to do."""


def ready(torch_directory, sources):
    """The directory of a stub for the torch in `torch_directory`, built now if need be."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise StubError("a dry run needs Linux on x86-64; this is %s on %s" % (sys.platform, os.uname().machine))
    headers(torch_directory)
    cache = cache_directory()
    final = os.path.join(cache, "stub-" + key(torch_directory, sources))
    if not os.path.exists(os.path.join(final, LIBRARY)):
        part = tempfile.mkdtemp(prefix="building-", dir=cache)
        try:
            build(torch_directory, sources, part)
            os.rename(part, final)
        except OSError:
            if not os.path.exists(os.path.join(final, LIBRARY)):  # else another process was first
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return final


def cache_directory():
    """Ours alone: a library is loaded from there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "oomscope")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path)
    except OSError as error:
        raise StubError("%s: cannot be made (%s); XDG_CACHE_HOME names another place" % (path, error.strerror))
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StubError("%s: others can write there; XDG_CACHE_HOME names another place" % path)
    return path


def key(torch_directory, sources):
    """What a stub depends on: its sources, this file, and torch's libraries."""
    digest = hashlib.sha256()
    for path in [*sorted(glob.glob(os.path.join(sources, "*.c"))), __file__]:
        with open(path, "rb") as file:
            digest.update(file.read())
    for path in torch_libraries(torch_directory):
        digest.update(("%s %d\n" % (path, os.path.getsize(path))).encode())
    return "%s-%s" % (version(torch_directory), digest.hexdigest()[:16])


def version(torch_directory):
    """Such as `2.9.1+cu128`, without importing torch."""
    try:
        with open(os.path.join(torch_directory, "version.py")) as file:
            found = re.search(r"__version__ = '([^']+)'", file.read())
    except OSError:
        found = None
    return found.group(1) if found else "of unknown release"


def torch_libraries(torch_directory):
    return sorted(glob.glob(os.path.join(torch_directory, "lib", "lib*.so")))


def headers(torch_directory):
    """The directories of headers that come with torch's own packages."""
    site = os.path.dirname(os.path.abspath(torch_directory))
    found = sorted(glob.glob(os.path.join(site, "nvidia", "*", "include")))
    if not any(os.path.exists(os.path.join(path, "driver_types.h")) for path in found):
        raise StubError(
            "torch %s has no headers of CUDA beside it (nvidia/*/include): a dry run needs the torch of PyPI or "
            "of download.pytorch.org, built for CUDA" % version(torch_directory)
        )
    return found


# What is missing ----------------------------------------------------------------------------------------------------


def undefined_symbols(path):
    """The names that the ELF file `path` looks for elsewhere."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:5] != b"\x7fELF\x02":
            return
        (sections,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        tables = [struct.unpack_from("<IIQQQQIIQQ", data, sections + index * size) for index in range(count)]
        for _, kind, _, _, offset, length, link, _, _, _ in tables:
            if kind == 11:  # SHT_DYNSYM
                names = tables[link][4]
                for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + length]):
                    if section == 0 and name:
                        end = data.find(b"\0", names + name)
                        yield data[names + name : end].decode("ascii", "replace")


def wanted(torch_directory):
    """Every symbol of CUDA's libraries that torch or Triton asks for, by linking or by name."""
    names = set()
    for path in torch_libraries(torch_directory):
        names.update(name for name in undefined_symbols(path) if OURS.match(name))
    with open(os.path.join(torch_directory, "lib", "libc10_cuda.so"), "rb") as file:
        names.update(name.decode() for name in re.findall(rb"\0((?:cu[A-Z]|nvml[A-Z])\w+)(?=\0)", file.read()))
    triton = os.path.join(os.path.dirname(os.path.abspath(torch_directory)), "triton", "backends", "nvidia", "*.*")
    for path in glob.glob(triton):
        if path.endswith((".c", ".py")):
            with open(path) as file:
                called = re.findall(
                    r"\b(cu(?:Ctx|Device|Event|Func|Get|Init|Kernel|Launch|Library|Link|Mem|Module|"
                    r"Occupancy|Pointer|Stream|Tensor)[A-Z]?\w*)\s*[;,)(]",
                    file.read(),
                )
            names.update(name for name in called if not re.search(r"_t$|Utils", name))
    return names


def prototypes(directories):
    """Of each function in the headers: its parameters, and whether it is of `WHOLE`. Names without their release."""
    found = {}
    for directory in directories:
        for path in sorted(glob.glob(os.path.join(directory, "*.h"))):
            with open(path, errors="replace") as file:
                text = re.sub(r"/\*.*?\*/|//[^\n]*|#[^\n]*(?:\\\n[^\n]*)*", " ", file.read(), flags=re.S)
            whole = os.path.basename(path) in WHOLE
            declared = re.findall(r"(const\s+char\s*\*|\w+)\s+(?:\w+\s+)*(\w+)\s*\(([^;{}()]*)\)\s*;", text)
            for result, name, parameters in declared:
                if OURS.match(name):
                    found.setdefault(name, (result, parameters, whole))
    return found


def generated(name, known):
    """C of the entry point `name`, that has no code of its own."""
    plain = re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)
    result, parameters, _ = known.get(name) or known.get(plain) or (None, None, None)
    if parameters is None:
        refuses = GIVES.search(name) is not None
        body = 'report_missing("%s"); return 801;' % name if refuses else "return 0;"
        return "EXPORT long %s(void) { %s }\n" % (name, body)
    taken, body = [], []
    for index, parameter in enumerate(split(parameters)):
        pointer, words = parameter.count("*"), re.sub(r"[*\[\]=]", " ", parameter).split()
        kind = [word for word in words if word not in ("const", "struct", "enum", "unsigned", "CUDARTAPI")] or ["int"]
        if pointer or parameter.endswith("]"):
            taken.append("void *a%d" % index)
            is_input = "const" in words
            if (
                re.search(r"Create|Init", name)
                and not is_input
                and re.search(r"(_t|_st|Handle|Descr|Info|Plan)$|^CU\w+$", kind[0])
            ):
                body.append(("new_object(a%d);" if pointer == 1 and kind[0] != "cufftHandle" else "zero_output(a%d, 4);") % index)
            elif pointer == 2 and not is_input:
                body.append("zero_output(a%d, 8);" % index)
            elif pointer == 1 and not is_input and NUMBERS.match(kind[0] if kind else "int"):
                body.append("zero_output(a%d, %d);" % (index, 8 if re.search(r"size_t|64|^long", kind[0]) else 4))
        else:
            taken.append("%s a%d" % (kind[0] if kind[0] in ("float", "double") else "long", index))
    for library, counter in (("cusolver", "CUSOLVER"), ("cufft", "CUFFT"), ("cusparse", "CUSPARSE")):
        if name.startswith(library) and re.search(r"ufferSize|MakePlan|workEstimation|_compute$", name):
            body.append("unknown_sizes[%s]++;" % counter)
    answer = '""' if "char" in result else "0"
    kind = "const char *" if "char" in result else "long "
    return "EXPORT %s%s(%s) { %s return %s; }\n" % (kind, name, ", ".join(taken) or "void", " ".join(body), answer)


def split(parameters):
    parts = [part.strip() for part in parameters.split(",")]
    return [part for part in parts if part and part != "void"]


# Compiling ----------------------------------------------------------------------------------------------------------


def build(torch_directory, sources, directory):
    """Compiles the stub for this torch into `directory`; returns how many entry points have code, and how many none."""
    include = headers(torch_directory)
    types = next(path for path in include if os.path.exists(os.path.join(path, "driver_types.h")))
    release = re.search(r"\+cu(\d+)", version(torch_directory)) or re.search(r"cu(\d+)$", os.path.dirname(types))
    cudart = 12010
    if release:
        digits = release.group(1)
        cudart = int(digits) * 1000 if len(digits) < 3 else int(digits[:-1]) * 1000 + int(digits[-1]) * 10
    releases = ["-DCUDART_V=%d" % cudart]
    major, minor, patch = [
        number(include, "cudnn_version*.h", "CUDNN_" + part) for part in ("MAJOR", "MINOR", "PATCHLEVEL")
    ]
    if major is not None:
        releases.append("-DCUDNN_V=%d" % (major * (1000 if major < 9 else 10000) + minor * 100 + patch))
    major, minor, patch = [number(include, "nccl.h", "NCCL_" + part) for part in ("MAJOR", "MINOR", "PATCH")]
    if major is not None:
        releases.append("-DNCCL_V=%d" % (major * 10000 + minor * 100 + patch))
    text = ""
    for path in sorted(glob.glob(os.path.join(sources, "*.c"))):
        with open(path) as file:
            text += file.read()
    defined = set(re.findall(r"EXPORT [\w \*]*?\**(\w+)\(", text))
    known = prototypes(include)
    asked = wanted(torch_directory) | {name for name, (_, _, whole) in known.items() if whole}
    shims = sorted(asked - defined)
    with open(os.path.join(directory, "generated.c"), "w") as file:
        file.write("#include <stub.c>\n/* accepted, with nothing behind them */\n")
        file.write("".join(generated(name, known) for name in shims))
    if not os.path.exists(os.path.join(types, "crt", "host_defines.h")):  # newer packages ship it apart
        host_defines(os.path.join(directory, "crt"))
    for name in (LIBRARY, NVML, "libcuda.so"):  # an older build had links there
        if os.path.lexists(os.path.join(directory, name)):
            os.unlink(os.path.join(directory, name))
    flags = ["-O1", "-w", "-shared", "-fPIC", "-fno-builtin", "-I" + sources, "-I" + types, "-I" + directory, *releases]
    compile_c(
        [
            *flags,
            "-Wl,-soname," + LIBRARY,
            os.path.join(directory, "generated.c"),
            "-o",
            os.path.join(directory, LIBRARY),
            "-ldl",
            "-lpthread",
        ]
    )
    # A library of its own, that leads to the same entry points: the loader must see one library with one state.
    with open(os.path.join(directory, "nvml.c"), "w") as file:
        file.write("extern int nvmlInit_v2(void); void *oomscope_nvml = (void *)nvmlInit_v2;\n")
    compile_c(
        [
            "-w",
            "-shared",
            "-fPIC",
            "-Wl,-soname," + NVML,
            os.path.join(directory, "nvml.c"),
            "-o",
            os.path.join(directory, NVML),
            os.path.join(directory, LIBRARY),
            "-Wl,-rpath,$ORIGIN",
        ]
    )
    os.symlink(LIBRARY, os.path.join(directory, "libcuda.so"))  # what a linker looks for
    return len(defined), len(shims)


def number(directories, name, macro):
    """What a header says of a release, or None."""
    for directory in directories:
        for path in sorted(glob.glob(os.path.join(directory, name))):
            with open(path, errors="replace") as file:
                found = re.search(r"#define\s+%s\s+(\d+)" % macro, file.read())
            if found:
                return int(found.group(1))
    return None


def host_defines(directory):
    """What the headers of the runtime take from a header that is not there."""
    os.makedirs(directory, exist_ok=True)
    empty = (
        "__device_builtin__ __device_builtin_texture_type__ __device_builtin_surface_type__ __cudart_builtin__ "
        "CUDARTAPI CUDARTAPI_CDECL CUDART_CB __CUDA_ARCH_HAS_FEATURE__"
    ).split()
    with open(os.path.join(directory, "host_defines.h"), "w") as file:
        file.write("".join("#define %s\n" % name for name in empty))
        file.write(
            "#define __builtin_align__(n) __attribute__((aligned(n)))\n#define __align__(n) __attribute__((aligned(n)))\n"
        )


def compiler():
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise StubError("there is no C compiler to build the stub of CUDA with, which is done once: " + COMPILERS)


def compile_c(arguments):
    command = compiler()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OOMSCOPE_DIR")}
    done = subprocess.run(
        command + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip().split("\n")
        wrong = next((line for line in said if "error" in line), said[0])
        raise StubError("%s could not build the stub of CUDA (%s): %s" % (command[0], wrong, COMPILERS))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    sources = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, os.pardir, os.pardir, "stub")
    spec = importlib.util.find_spec("torch")
    directory = spec.submodule_search_locations[0]
    os.makedirs(sys.argv[1], exist_ok=True)
    with_code, without = build(directory, os.path.abspath(sources), sys.argv[1])
    print(
        "%s  (torch %s, %d implemented, %d accepted and ignored)"
        % (os.path.join(sys.argv[1], LIBRARY), version(directory), with_code, without)
    )


if __name__ == "__main__":
    try:
        main()
    except StubError as error:
        sys.exit("oomscope: %s" % error)
