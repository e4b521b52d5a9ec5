"""Builds the stub of CUDA for one installed torch. `oomscope dry-run` runs programs with it.

The directory `stub` implements in C the entry points whose result matters. This file generates the others: those that
torch's libraries need, and all of the CUDA runtime, the driver and cuBLAS, by the headers in torch's own packages. A
generated entry point does nothing, returns success, and sets its outputs to zero or to a new object. If it has no
prototype and its name suggests an output, it reports its name and fails.

`prepare` builds once per release of torch and of the stub, into $XDG_CACHE_HOME/oomscope.
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

# The stub has the name of the CUDA driver. A second library with the name of NVML refers to it.
LIBRARY = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
# Symbols that the stub must have: of every library that uses a GPU, and of CUPTI, which crashes without one. The
# run-time compiler (nvrtc) works without a GPU.
STUB_SYMBOL = re.compile(r"(__cuda|cuda|cublas|cudnn|cupti|cusolver|cusparse|cufft|curand|nccl|cuFile|cu[A-Z])\w*$")
# Functions that give the device work.
WORK = re.compile(r"cu(da)?Memset|cu(blas|solver|sparse)(?!\w*(Create|Destroy|Get|Set|ufferSize|Heuristic))")
# Names that suggest an output parameter.
HAS_OUTPUT = re.compile(r"Get|Create|Query|ufferSize|Alloc|Import|Export|Heuristic")
# Headers whose functions are all generated: extensions need more of them than torch does.
COMPLETE_HEADERS = ("cuda.h", "cuda_runtime_api.h", "cublas_api.h", "cublasLt.h")
NUMBER_TYPE = re.compile(r"(unsigned|signed|int|long|short|char|size_t|u?int\d+_t|cuuint\d+_t)$")
INSTALL_COMPILER = (
    "install a C compiler (Debian, Ubuntu: apt install gcc), or `pip install ziglang` into the program's environment"
)


class StubError(Exception):
    """The message says why there is no stub, and what to do."""


def prepare(torch_directory, sources):
    """Returns the directory of a stub for the torch in `torch_directory`. Builds it if the cache has none."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise StubError("a dry run needs Linux on x86-64; this is %s on %s" % (sys.platform, os.uname().machine))
    cache = cache_directory()
    final = os.path.join(cache, "stub-" + cache_key(torch_directory, sources))
    if not os.path.isdir(final):
        part = tempfile.mkdtemp(prefix="building-", dir=cache)
        try:
            build(torch_directory, sources, part)
            os.rename(part, final)
        except OSError:
            if not os.path.isdir(final):  # otherwise another process has built it
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return final


def cache_directory():
    """A directory in which only this user can write, because a library is loaded from it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # as its specification says: it would be another place in every directory
        base = os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "oomscope")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
    except OSError as error:
        raise StubError(
            "%s: cannot create it (%s); set XDG_CACHE_HOME to another place" % (path, error.strerror)
        ) from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise StubError("%s: other users can write to it; set XDG_CACHE_HOME to another place" % path)
    return path


def cache_key(torch_directory, sources):
    """Changes with everything that a stub depends on: its sources, this file and torch's libraries."""
    digest = hashlib.sha256()
    for path in [*sorted(glob.glob(os.path.join(sources, "**", "*.[ch]"), recursive=True)), __file__]:
        with open(path, "rb") as file:
            digest.update(file.read())
    for path in torch_libraries(torch_directory):
        digest.update(("%s %d\n" % (path, os.path.getsize(path))).encode())
    return "%s-%s" % (version(torch_directory), digest.hexdigest()[:16])


def version(torch_directory):
    """The release, such as `2.9.1+cu128`, without importing torch."""
    with open(os.path.join(torch_directory, "version.py")) as file:
        return re.search(r"__version__ = '([^']+)'", file.read()).group(1)


def torch_libraries(torch_directory):
    return sorted(glob.glob(os.path.join(torch_directory, "lib", "lib*.so")))


def include_directories(torch_directory):
    """The directories with the CUDA headers that torch's own packages contain."""
    site = os.path.dirname(os.path.abspath(torch_directory))
    found = sorted(glob.glob(os.path.join(site, "nvidia", "*", "include")))
    if not any(os.path.exists(os.path.join(path, "driver_types.h")) for path in found):
        raise StubError(
            "torch %s has no CUDA headers beside it (nvidia/*/include): a dry run needs a torch built for CUDA, from "
            "PyPI or download.pytorch.org" % version(torch_directory)
        )
    return found


# Needed symbols ------------------------------------------------------------------------------------------------------


def undefined_symbols(path):
    """The undefined dynamic symbols of the ELF file `path`."""
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


def needed_symbols(torch_directory):
    """Every symbol of CUDA's libraries that torch or Triton links to or looks up by name."""
    names = set()
    for path in torch_libraries(torch_directory):
        names.update(name for name in undefined_symbols(path) if STUB_SYMBOL.match(name))
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


def read_headers(directories):
    headers = {}
    for path in (path for directory in directories for path in sorted(glob.glob(os.path.join(directory, "*.h")))):
        with open(path, errors="replace") as file:
            headers[path] = file.read()
    return headers


def prototypes(headers):
    """The functions that the headers declare, by name: result, parameters, and whether to generate them all."""
    found = {}
    for path, text in headers.items():
        code = re.sub(r"/\*.*?\*/|//[^\n]*|#[^\n]*(?:\\\n[^\n]*)*", " ", text, flags=re.S)
        is_complete = os.path.basename(path) in COMPLETE_HEADERS
        declared = re.findall(r"(const\s+char\s*\*|\w+)\s+(?:\w+\s+)*(\w+)\s*\(([^;{}()]*)\)\s*;", code)
        for result, name, parameters in declared:
            if STUB_SYMBOL.match(name):
                found.setdefault(name, (result, parameters, is_complete))
    return found


def generate(name, known):
    """The C source of an entry point that does nothing. `known` are the prototypes."""
    base_name = re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)
    result, parameters, _ = known.get(name) or known.get(base_name) or (None, None, None)
    work = "write_by_work(); " if WORK.match(name) else ""
    if parameters is None:
        body = 'report_missing("%s"); return NOT_SUPPORTED;' % name if HAS_OUTPUT.search(name) else work + "return 0;"
        return "EXPORT long %s(void) { %s }\n" % (name, body)
    signature, body, names = [], [], {}
    for index, parameter in enumerate(part for part in parameters.split(",") if part.strip() not in ("", "void")):
        pointers, words = parameter.count("*"), re.sub(r"[*\[\]=]", " ", parameter).split()
        types = [word for word in words if word not in ("const", "struct", "enum", "unsigned", "CUDARTAPI")]
        if not pointers and len(words) > 1:
            names[words[-1]] = "(%s)a%d" % ("int64_t" if "64" in types[0] else "int", index)
        type_name = types[0] if types else "int"
        if not pointers and not parameter.endswith("]"):
            signature.append("%s a%d" % (type_name if type_name in ("float", "double") else "long", index))
            continue
        signature.append("void *a%d" % index)
        if "const" not in words:
            body += set_output(name, index, type_name, pointers)
    body += count_workspace(name, names, signature)
    is_text = "char" in result
    body.append(work + ('return "";' if is_text else "return 0;"))
    result_type = "const char *" if is_text else "long "
    return "EXPORT %s%s(%s) { %s }\n" % (result_type, name, ", ".join(signature) or "void", " ".join(body))


def count_workspace(name, names, signature):
    """The C statements, if any, for a function that queries a workspace: an estimate (stub/solvers.c), or a count.

    `names` are the C expressions of its numbers.
    """
    if name.startswith("cusolverDn") and "ufferSize" in name and "n" in names:
        letter = name[len("cusolverDn")]
        element = {"S": "4", "D": "8", "C": "8"}.get(letter, "16")
        batch = names.get("batchSize") or names.get("batch") or "1"
        return ["estimate_solver(%s, %s, %s, %s);" % (names.get("m", "0"), names["n"], batch, element)]
    if re.match(r"cusparse(SpMM|SpMV|SDDMM|SpSM|SpSV)_bufferSize$", name):
        listed = ", ".join("(void *)a%d" % index for index in range(len(signature)))
        return ["void *arguments[] = {%s}; estimate_sparse(arguments, %d);" % (listed, len(signature))]
    for library, counter in (("cusolver", "CUSOLVER"), ("cufft", "CUFFT"), ("cusparse", "CUSPARSE")):
        if name.startswith(library) and re.search(r"ufferSize|MakePlan|workEstimation|_compute$", name):
            return ["unknown_sizes[%s]++;" % counter]
    return []


def set_output(name, index, type_name, pointers):
    """The C statements, if any, that set the output parameter `index` of function `name`."""
    is_object = re.search(r"(_t|_st|Handle|Descr|Info|Plan)$|^CU\w+$", type_name)
    if is_object and re.search(r"Create|Init", name):
        # A cufftHandle is an int, not a pointer.
        is_pointer = pointers == 1 and type_name != "cufftHandle"
        return ["new_object(a%d);" % index if is_pointer else "zero_output(a%d, 4);" % index]
    if pointers == 2:
        return ["zero_output(a%d, 8);" % index]
    if pointers == 1 and NUMBER_TYPE.match(type_name):
        return ["zero_output(a%d, %d);" % (index, 8 if re.search(r"size_t|64|^long", type_name) else 4)]
    return []


# Compiling ----------------------------------------------------------------------------------------------------------


def build(torch_directory, sources, directory):
    includes = include_directories(torch_directory)
    runtime_include = next(path for path in includes if os.path.exists(os.path.join(path, "driver_types.h")))
    implemented = set()
    for path in sorted(glob.glob(os.path.join(sources, "*.c"))):
        with open(path) as file:
            implemented.update(re.findall(r"EXPORT [\w \*]*?\**(\w+)\(", file.read()))
    headers = read_headers(includes)
    known = prototypes(headers)
    needed = needed_symbols(torch_directory) | {name for name, (_, _, is_complete) in known.items() if is_complete}
    with open(os.path.join(directory, "generated.c"), "w") as file:
        file.write("#include <stub.c>\n/* accepted, with nothing behind them */\n")
        file.write("".join(generate(name, known) for name in sorted(needed - implemented)))
    library = os.path.join(directory, LIBRARY)
    shared = ["-w", "-shared", "-fPIC"]
    compile_c(
        [
            *shared,
            *("-O1", "-fno-builtin", "-I" + runtime_include, "-I" + sources),
            *release_flags(headers),
            *("-Wl,-soname," + LIBRARY, os.path.join(directory, "generated.c")),
            *("-o", library, "-ldl", "-lpthread"),
        ]
    )
    # NVML is a library of its own that refers to the first one: both names must lead to the same state.
    output = os.path.join(directory, NVML)
    compile_c([*shared, "-Wl,-soname," + NVML, "-o", output, "-Wl,--no-as-needed", library, "-Wl,-rpath,$ORIGIN"])
    os.symlink(LIBRARY, os.path.join(directory, "libcuda.so"))  # the name that linkers look for


def release_flags(headers):
    """Compiler flags with the releases of CUDA, cuDNN and NCCL that the headers belong to."""
    define = re.compile(r"#define\s+(CUDART_VERSION|NCCL_VERSION_CODE|CUDNN_(?:MAJOR|MINOR|PATCHLEVEL))\s+(\d+)")
    macros = {name: int(number) for text in headers.values() for name, number in define.findall(text)}
    releases = {"CUDART": macros.get("CUDART_VERSION"), "NCCL": macros.get("NCCL_VERSION_CODE")}
    major = macros.get("CUDNN_MAJOR")
    if major:
        factor = 1000 if major < 9 else 10000
        releases["CUDNN"] = major * factor + macros["CUDNN_MINOR"] * 100 + macros["CUDNN_PATCHLEVEL"]
    return ["-D%s_V=%d" % release for release in releases.items() if release[1]]


def compiler():
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise StubError("there is no C compiler to build the stub of CUDA (once per torch release): " + INSTALL_COMPILER)


def compile_c(arguments):
    command = compiler()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OOMSCOPE_DIR")}
    result = subprocess.run(
        command + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    if result.returncode:
        lines = result.stdout.decode("utf-8", "replace").strip().split("\n")
        message = next((line for line in lines if "error" in line), lines[0])
        raise StubError("%s could not build the stub of CUDA (%s): %s" % (command[0], message, INSTALL_COMPILER))
