"""The files of a dry run: what the program writes goes to a directory of its own, and is read back from there.

The tensors of a dry run are zero, and so are its checkpoints. They must not replace real ones, and a checkpoint that
the program rotates out must not be a real one. `Overlay` therefore redirects every path that Python opens, lists,
renames or removes to a copy: `/home/me/best.pt` to `DIR/files/home/me/best.pt`. What is removed is only hidden.

All processes of the job share the overlay: the copies are files, and two lists in `DIR/.recorder` name what was removed
and what was created in place. In temporary directories and caches new files are created in place, because compilers and
other programs expect them there. Devices, pipes and the output directory itself are not redirected.

Only Python's own functions are redirected, and those of torch, safetensors and sqlite3 that open a path in C++, Rust or
C. Other programs that the job starts, and other extensions, write where they always do.
"""

import collections.abc
import contextlib
import errno
import functools
import glob
import io
import operator
import os
import pathlib
import shutil
import stat
import sys
import tempfile
import threading

from . import _imports

# Functions of `os` that read a path, and functions that change what is already there.
READERS = ("stat", "lstat", "access", "readlink", "chdir", "statvfs", "listxattr", "getxattr", "pathconf")
CHANGERS = ("truncate", "chmod", "chown", "lchown", "utime", "setxattr", "removexattr")
# Caches, in which new files are created in place: environment variable and default.
CACHES = (
    ("XDG_CACHE_HOME", "~/.cache"),
    ("TRITON_CACHE_DIR", "~/.triton"),
    ("TRITON_HOME", "~/.triton"),
    ("TORCHINDUCTOR_CACHE_DIR", ""),
    ("HF_HOME", "~/.cache/huggingface"),
    ("TORCH_HOME", "~/.cache/torch"),
    ("MPLCONFIGDIR", "~/.config/matplotlib"),
    # What the servers of Ray, which are not redirected, share with the program.
    ("RAY_TMPDIR", ""),
    ("", "~/.ray"),
)
# These have no files that could be kept.
NOT_FILES = ("/dev", "/proc", "/sys")
# Variables that keep loggers from sending the run to a service.
OFFLINE = {
    "WANDB_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "offline",
}
# Methods of huggingface_hub that change something on the Hub.
HUB_WRITES = (
    "create_branch create_commit create_tag delete_file delete_folder delete_repo super_squash_history "
    "update_repo_settings upload_file upload_folder upload_large_folder".split()
)
# Flags of `os.open` for the letters of a mode of `open`.
FLAGS = {
    "w": os.O_CREAT | os.O_TRUNC,
    "a": os.O_CREAT | os.O_APPEND,
    "x": os.O_CREAT | os.O_TRUNC | os.O_EXCL,
    "+": os.O_RDWR,
}

# Never redirected.
real_access = os.access


def is_within(path, directory):
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_directory(path):
    """Whether `path` is a directory itself, not a link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


class SharedPaths:
    """A set of paths that all processes of the job share: a file to which they append."""

    def __init__(self, file):
        self.file = file
        self.size = 0
        self.paths = set()

    def add(self, path):
        try:
            with open(self.file, "ab") as file:
                file.write(os.fsencode(path) + b"\0")
        except FileNotFoundError:
            return  # the command has ended, and this process outlives it

    def covers(self, path):
        """Whether `path` or a directory above it is in the set."""
        try:
            size = os.stat(self.file).st_size
        except OSError:
            return False
        if size != self.size:
            with open(self.file, "rb") as file:
                self.paths = set(map(os.fsdecode, file.read().split(b"\0")))
            self.size = size
        while path != "/":
            if path in self.paths:
                return True
            path = os.path.dirname(path)
        return False


class Overlay:
    """Redirects the paths of this process. `directory` is the output directory of the dry run.

    Methods run with `busy.now` set, under which the replaced functions of `os` are the real ones.
    """

    def __init__(self, directory):
        self.directory = os.path.realpath(directory)
        self.root = os.path.join(self.directory, "files")
        control = os.path.join(self.directory, ".recorder")
        self.removed = SharedPaths(os.path.join(control, "removed"))
        self.created = SharedPaths(os.path.join(control, "created"))
        self.busy = threading.local()
        # Whether any process of the job has written or removed something outside the scratch directories.
        self.is_used = False
        caches = [os.path.expanduser(os.environ.get(name) or default) for name, default in CACHES]
        scratch = [tempfile.gettempdir(), "/tmp", "/var/tmp", *caches]
        self.scratch = sorted({os.path.realpath(path) for path in scratch if path})

    # Paths -------------------------------------------------------------------------------------------------------

    def key(self, path):
        """The absolute path, without links in its directory, or None if `path` is not redirected."""
        path = os.path.join(os.getcwd(), os.fsdecode(path))
        parent, name = os.path.split(path.rstrip("/") or "/")
        if name in ("", ".", ".."):
            parent, name = path, ""
        parent = os.path.realpath(parent)
        copy = self.copy_of(parent)
        resolved = os.path.realpath(copy)
        if resolved != copy:  # the program has made a link of that name
            parent = resolved[len(self.root) :] or "/" if is_within(resolved, self.root) else resolved
        path = os.path.join(parent, name) if name else parent
        if is_within(path, self.root) and path != self.root:
            # The program may have changed into the copy of its directory.
            return path[len(self.root) :]
        is_real = is_within(path, self.directory) or any(is_within(path, other) for other in NOT_FILES)
        return None if is_real else path

    def copy_of(self, key):
        return self.root + key

    def is_visible(self, key):
        """Whether the program sees what is at `key` outside the overlay."""
        return os.path.lexists(key) and not self.removed.covers(key)

    def is_in_place(self, key):
        """Whether the program may create, change or remove `key` itself."""
        if self.created.covers(key):
            return True
        try:
            mode = os.lstat(key).st_mode
        except OSError:
            return any(is_within(key, directory) for directory in self.scratch)
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))

    def is_unused(self):
        """Whether every path is read as it is. `import torch` reads ten thousand, so this must be quick."""
        if not self.is_used:
            self.is_used = real_access(self.root, os.F_OK) or real_access(self.removed.file, os.F_OK)
        return not self.is_used

    def to_read(self, path):
        key = self.key(path)
        if key is None:
            return path
        copy = self.copy_of(key)
        if os.path.lexists(copy) or self.removed.covers(key):
            return copy
        if not os.path.lexists(key) and os.path.lexists(os.path.dirname(copy)):
            return copy  # where the operation fails with the right error
        return self.outside(path, key)

    def outside(self, path, key):
        """`path` outside the overlay. A relative path changes its meaning if the program is in a copied directory."""
        return key if is_within(os.getcwd(), self.root) else path

    def to_write(self, path, keep):
        """Where a write to `path` goes. With `keep`, the copy starts as what is there now."""
        key = self.key(path)
        if key is None:
            return path
        copy = self.copy_of(key)
        link = copy if os.path.islink(copy) else key if os.path.islink(key) and self.is_visible(key) else None
        if link is not None:
            # A write goes to the target of a link, if the link has an end.
            target = os.path.join(os.path.dirname(key), os.readlink(link))
            is_loop = os.path.realpath(link) == link
            return link if is_loop else self.to_write(target, keep)
        if os.path.lexists(copy):
            return copy
        if self.is_in_place(key):
            if not self.created.covers(key) and not os.path.lexists(key):
                self.created.add(key)
            return self.outside(path, key)
        parent = os.path.dirname(key)
        if not os.path.isdir(self.copy_of(parent)):
            if not (os.path.isdir(parent) and self.is_visible(parent)):
                return copy  # where the write fails, as it would without the overlay
            os.makedirs(self.copy_of(parent), exist_ok=True)
        if keep and self.is_visible(key):
            if os.path.isdir(key):
                os.mkdir(copy)
            else:
                self.copy(key, copy)
        return copy

    # Functions of `os` --------------------------------------------------------------------------------------------

    def to_open(self, path, flags):
        visible = self.to_read(path)
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            return visible
        is_there = os.path.lexists(visible)
        if (flags & os.O_EXCL and is_there) or (not flags & os.O_CREAT and not is_there) or os.path.isdir(visible):
            return visible  # where it fails
        return self.to_write(path, keep=not flags & os.O_TRUNC)

    def open(self, path, flags, mode=0o777):
        return os.open(self.to_open(path, flags), flags, mode)

    def mkdir(self, path, *args, **kwargs):
        visible = self.to_read(path)
        os.mkdir(visible if os.path.lexists(visible) else self.to_write(path, keep=False), *args, **kwargs)

    def unlink(self, path):
        if is_directory(self.to_read(path)):
            raise error(errno.EISDIR, path)
        self.remove_by(os.unlink, path)

    def rmdir(self, path):
        visible = self.to_read(path)
        if os.path.lexists(visible) and not is_directory(visible):
            raise error(errno.ENOTDIR, path)
        if os.path.isdir(visible) and self.listdir(path):
            raise error(errno.ENOTEMPTY, path)
        self.remove_by(os.rmdir, path)

    def remove_by(self, function, path):
        key = self.key(path)
        if key is None:
            return function(path)
        copy, is_visible = self.copy_of(key), self.is_visible(key)
        if os.path.lexists(copy) or not is_visible:
            function(copy)
        elif self.is_in_place(key):
            return function(key)
        if is_visible:
            self.removed.add(key)

    def rename(self, source, target):
        visible, key = self.to_read(source), self.key(source)
        for path in (source, target):
            parent = os.path.dirname(os.fsdecode(path).rstrip("/")) or os.curdir
            os.stat(os.path.join(self.to_read(parent), os.curdir))  # raises if this is no directory
        os.lstat(visible)  # raises if there is nothing
        if not self.may_rename(visible, source, target):
            return
        destination = self.to_write(target, keep=False)
        if key is not None and (visible == self.copy_of(key) or not self.is_in_place(key)):
            visible = self.copy_of(key)
            if self.is_visible(key):  # of a directory that has a copy, the rest moves, too
                os.makedirs(os.path.dirname(visible), exist_ok=True)
                self.copy(key, visible)
        move(visible, destination)
        if key is not None and self.is_visible(key):
            self.removed.add(key)

    def may_rename(self, visible, source, target):
        """False if both are the same. Raises an error if the rename would fail."""
        there, key, target_key = self.to_read(target), self.key(source), self.key(target)
        if key is not None and key == target_key:
            return False
        if is_directory(visible) and key and target_key and is_within(target_key, key):
            raise error(errno.EINVAL, source)
        if key and target_key and is_within(key, target_key):
            raise error(errno.ENOTEMPTY, source)
        if os.path.lexists(there):
            if is_directory(visible) != is_directory(there):
                raise error(errno.EISDIR if is_directory(there) else errno.ENOTDIR, source)
            if is_directory(there) and self.listdir(target):
                raise error(errno.ENOTEMPTY, source)
        return True

    def copy(self, source, target):
        """Copies a file, a link or what the program sees of a directory, except for what is at `target` already."""
        if is_directory(source):
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                if not self.removed.covers(os.path.join(source, name)):
                    self.copy(os.path.join(source, name), os.path.join(target, name))
        elif os.path.lexists(target):
            pass
        elif os.path.islink(source):
            # A relative link would have another target at another place.
            os.symlink(os.path.join(os.path.dirname(source), os.readlink(source)), target)
        else:
            shutil.copy2(source, target)

    def link(self, source, target, follow_symlinks=True):
        source, target = os.fsdecode(source), os.fsdecode(target)
        # A second name of a real file would let a later write reach it.
        visible = self.to_read(target)
        if os.path.lexists(visible):
            raise error(errno.EEXIST, target)
        self.copy(os.path.abspath(self.to_read(source)), self.to_write(target, keep=False))

    def symlink(self, source, target, target_is_directory=False):
        source, target = os.fsdecode(source), os.fsdecode(target)
        visible = self.to_read(target)
        if not os.path.lexists(visible):
            visible = self.to_write(target, keep=False)
        # A relative link among the copies would not reach a real file.
        real = os.path.join(os.path.dirname(self.key(target) or ""), source)
        is_copied = os.path.lexists(os.path.join(os.path.dirname(visible), source))
        os.symlink(real if os.path.lexists(real) and not is_copied else source, visible)

    def listdir(self, path=os.curdir):
        """The names in a directory: of the copies, and of what is still visible outside."""
        key = self.key(path)
        if key is None:
            return os.listdir(path)
        copy, is_shown = self.copy_of(key), os.path.isdir(key) and self.is_visible(key)
        if not is_shown and not os.path.isdir(copy):
            return os.listdir(self.to_read(path))
        real = os.listdir(key) if is_shown else []
        names = [name for name in real if not self.removed.covers(os.path.join(key, name))]
        if os.path.isdir(copy):
            names += [name for name in os.listdir(copy) if name not in set(names)]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path=os.curdir):
        key = self.key(path)
        if key is None or not (os.path.isdir(self.copy_of(key)) or self.removed.covers(key) or self.removed.paths):
            return os.scandir(self.to_read(path))
        names, entries = self.listdir(path), {}
        for place in filter(os.path.isdir, (key, self.copy_of(key))):
            with os.scandir(os.fsencode(place) if isinstance(path, bytes) else place) as found:
                entries.update((entry.name, entry) for entry in found)
        return Listing([Entry(entries[name], os.path.join(path, name)) for name in names if name in entries])

    # Installation ------------------------------------------------------------------------------------------------

    def install(self):
        """Redirects the functions of this process, and keeps its loggers offline."""
        import builtins

        os.environ.update(OFFLINE)
        os.environ["WANDB_DIR"] = os.environ["COMET_OFFLINE_DIRECTORY"] = self.root
        if os.environ.get("MLFLOW_TRACKING_URI", "").startswith(("http:", "https:", "databricks")):
            os.environ["MLFLOW_TRACKING_URI"] = "file:" + os.path.join(self.root, "mlruns")
        for name in READERS:
            self.redirect(os, name, self.to_read, is_reader=True)
        for name in CHANGERS:
            self.redirect(os, name, functools.partial(self.to_write, keep=True))
        _imports.around(io, "open")(self.open_file)
        builtins.open = io.open
        for name in ("open", "mkdir", "unlink", "rmdir", "rename", "link", "symlink", "listdir", "scandir"):
            self.replace(name, getattr(self, name))
        self.replace("remove", self.unlink)
        self.replace("replace", self.rename)
        # Replaced functions support what their originals do, except for descriptors of directories.
        for functions in (os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            functions.update([new for new in vars(os).values() if getattr(new, "__wrapped__", None) in functions])
        # Removal through descriptors of directories would pass by these functions.
        shutil._use_fd_functions = False
        # Up to Python 3.10 pathlib has its own references to the functions of `os`, and since 3.13 glob.
        for owner in filter(None, (getattr(pathlib, "_NormalAccessor", None), getattr(glob, "_StringGlobber", None))):
            for name, original in list(vars(owner).items()):
                module = {"posix": os, "io": io}.get(getattr(original, "__module__", None))
                if module is not None and hasattr(module, original.__name__):
                    setattr(owner, name, staticmethod(getattr(module, original.__name__)))

    def resolve(self, function, path, *args):
        """`function(path, ..)` with the real functions of `os`. What is not a path is returned as it is."""
        if not isinstance(path, (str, bytes, os.PathLike)) or getattr(self.busy, "now", False):
            return path
        self.busy.now = True
        try:
            return function(os.fspath(path), *args)
        finally:
            self.busy.now = False

    def redirect(self, module, name, function, position=0, keyword="path", is_reader=False):
        """Makes `module.name` take `function(path)` instead of the path that it is called with."""

        @_imports.around(module, name)
        def redirected(original, *args, **kwargs):
            if is_reader and self.is_unused():
                return original(*args, **kwargs)
            args, folder = list(args), kwargs.pop("dir_fd", None)
            given, at = (kwargs, keyword) if keyword in kwargs else (args, position)
            if given is kwargs or position < len(args):
                given[at] = self.resolve(function, in_folder(given[at], folder))
            return original(*args, **kwargs)

    def open_file(self, original, file, mode="r", *args, **kwargs):
        if mode not in ("r", "rb") or not self.is_unused():
            flags = functools.reduce(operator.or_, (FLAGS.get(letter, 0) for letter in mode), 0)
            file = self.resolve(self.to_open, file, flags)
        return original(file, mode, *args, **kwargs)

    def replace(self, name, function):
        """Makes `os.name` call `function`, whose first argument is a path, or two of which are."""
        names = ("src", "dst") if function in (self.rename, self.link, self.symlink) else ("path",)
        is_reader = function in (self.listdir, self.scandir)

        @_imports.around(os, name)
        def replaced(original, *args, **kwargs):
            is_real = getattr(self.busy, "now", False) or (is_reader and self.is_unused())
            if is_real or (args and isinstance(args[0], int)):
                return original(*args, **kwargs)
            args = [*args, *(kwargs.pop(name) for name in names[len(args) :] if name in kwargs)]
            folders = [kwargs.pop("src_dir_fd", None), kwargs.pop("dst_dir_fd", None)]
            folders[len(names) - 1] = kwargs.pop("dir_fd", folders[len(names) - 1])
            for at, folder in enumerate(folders[: min(len(names), len(args))]):
                args[at] = in_folder(os.curdir if args[at] is None else os.fspath(args[at]), folder)
            self.busy.now = True
            try:
                return function(*args, **kwargs)
            finally:
                self.busy.now = False

    def after_torch(self, torch):
        """Redirects what opens a path in C++: archives, TorchScript, and `torch.load(.., mmap=True)`."""
        to_write = functools.partial(self.to_write, keep=False)
        self.redirect(torch._C.PyTorchFileWriter, "__init__", to_write, 1)
        self.redirect(torch._C.PyTorchFileReader, "__init__", self.to_read, 1)
        self.redirect(torch.jit, "save", to_write, 1, "f")
        for module in (torch, torch.serialization, torch.jit):
            self.redirect(module, "load", self.to_read, 0, "f")

    def after_safetensors(self, module):
        self.redirect(module, "serialize_file", functools.partial(self.to_write, keep=False), 1, "filename")
        self.redirect(module, "safe_open", self.to_read, 0, "filename")

    def after_sqlite(self, module):
        def to_database(path):
            is_file = not os.fsdecode(path).startswith((":memory:", "file:")) and path
            return self.to_write(path, keep=True) if is_file else path

        self.redirect(module, "connect", to_database, 0, "database")
        module.dbapi2.connect = module.connect


class Entry:
    """An `os.DirEntry` of a file that may be a copy, with the path that it has for the program."""

    def __init__(self, entry, path):
        self.entry, self.path = entry, path

    def __fspath__(self):
        return self.path

    def __getattr__(self, name):
        return getattr(self.entry, name)


class Listing(collections.abc.Iterator, contextlib.AbstractContextManager):
    """Like the iterator of `os.scandir`."""

    def __init__(self, entries):
        self.entries = iter(entries)

    def __next__(self):
        return next(self.entries)

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self.entries = iter(())


def error(code, path):
    return OSError(code, os.strerror(code), path)


def in_folder(path, folder):
    """`path`, which is relative to the directory with the descriptor `folder` if there is one."""
    if folder is None or not isinstance(path, (str, bytes, os.PathLike)):
        return path
    return os.path.join(os.readlink("/proc/self/fd/%d" % folder), os.fsdecode(path))


def move(source, target):
    try:
        os.rename(source, target)
    except OSError as failure:
        if failure.errno != errno.EXDEV:
            raise
        shutil.move(source, target)


def keep_off_hub(module):
    """Makes the methods of huggingface_hub that change something on the Hub do nothing."""
    from concurrent.futures import Future

    def send_nothing(original, *args, **kwargs):
        sys.stderr.write("oomscope: dry run: nothing is sent to the Hugging Face Hub (%s)\n" % original.__name__)
        if not kwargs.get("run_as_future"):
            return None
        future = Future()
        future.set_result(None)
        return future

    def create_repo(_original, _api, repo_id, *args, **kwargs):
        return module.RepoUrl("https://huggingface.co/" + repo_id)

    for name in (*HUB_WRITES, "create_repo"):
        _imports.around(module.HfApi, name)(create_repo if name == "create_repo" else send_nothing)
        if hasattr(module, name):
            setattr(module, name, getattr(module.api, name))
