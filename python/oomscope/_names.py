"""Names the tensors of this process that are on a GPU: which variable keeps each of them alive.

`describe(budget_s)` returns what the recorder stores as `oomscope.names` in the snapshot (docs/snapshot-format.md). It
runs no code of the program (`_objects`, `_tensors`), allocates no GPU memory, keeps nothing, and stops in time.

The walk from the variables of modules and frames is breadth first, so the shortest name comes first. Tensors, modules,
optimizers and autograd graphs get most of the time: a million other objects may not lead to any memory.
"""

import collections
import gc
import itertools
import operator
import re
import sys
import time
import types

from . import _objects, _source, _tensors

# Seconds that may pass, whether or not this process has a processor all the time.
BUDGET_S = 0.95
# Shares of the budget: after the first the walk through the user's variables ends, after the second every walk, after
# the third the names as text. The rest is for what cannot be interrupted, such as freeing the paths.
USER_SHARE, WALK_SHARE, TEXT_SHARE = 0.45, 0.75, 0.88
# Objects, or rows of text, between two looks at the clock.
INTERVAL = 16
# The same for objects that are only listed.
LISTED_INTERVAL = 500
# Seconds of a search among all objects, for each block of memory that Python has allocated.
SEARCHED_S = 15e-9
# Items of a large container that are visited in one go. If the first ones lead to no tensor, the rest waits.
CHUNK = 1000
# A container with at most so many items is visited in one go.
SMALL = 16
# Objects of PyTorch that are visited for each other object, and at most so many at once.
NEAR_TURNS, MAX_NEAR_TURNS = 4, 4000
# Limits of what is remembered: visited objects, storages, names of one storage.
MAX_OBJECTS, MAX_ROWS, MAX_CANDIDATES = 1000000, 100000, 4
# Modules that are listed.
MAX_MODULES, MAX_UNTRAINED = 10000, 3
# Limits of a name: characters, and steps from its root.
MAX_NAME, MAX_DEPTH = 300, 200
MAX_LOCALS = 50
# Values that may be alone.
MAX_ALONE = 20
# Containers inside each other that are looked into for the first tensor of a list.
MAX_NESTED = 3
# Places in one storage that are counted.
MAX_PLACES = 1000
# Tensors without a variable whose holders are looked for, how far, and how many objects at each step.
MAX_CLIMBS, MAX_HOPS, MAX_HOLDERS = 4, 6, 10
# Searches among all objects that have time if the rest of the walk takes too long.
SEARCHES = 12
# Running functions that are described.
MAX_CALLS = 8
# A statement that makes a list: `batches = list(loader)`, `models = [load(path) for path in paths]`.
LIST = re.compile(r"\s*(?P<target>[A-Za-z_][\w.]*)\s*=(?!=).*(\blist\(|\[.*\bfor\b)")
# A share of memory without a name that is not worth a further search.
NEGLIGIBLE = 0.002

# Of several uses of a storage the first one counts.
KINDS = ("parameter", "gradient", "optimizer state", "buffer", "saved", "variable")
PARAMETER, GRADIENT, STATE, BUFFER, SAVED, VARIABLE = KINDS
# Modules with adapters, by their class or name. The model that they adapt has many times their parameters.
ADAPTER, MIN_BASE = re.compile(r"lora|adapter", re.IGNORECASE), 4
# Attributes through which a wrapper holds what it wraps.
TRANSPARENT = ("._orig_mod", "._fsdp_wrapped_module", "._checkpoint_wrapped_module", "._local_tensor")


class Root:
    """Where a name starts: a `frame`, a `module`, or an `exception`.

    Or no variable leads there: the value of a running `call`, a reference `cycle`, or `unreached` in the time allowed.
    """

    __slots__ = ("author", "described", "kind")

    def __init__(self, kind, author=_objects.USER, **described):
        self.kind, self.author, self.described = kind, author, {"kind": kind, "author": author, **described}


class Path:
    """The way to an object: the path to what refers to it, and a label.

    The label is text, or the id of the parameter to which a dict of optimizer state belongs.
    """

    __slots__ = ("items", "kind", "label", "module", "operator", "parameter", "root", "size", "up")

    def __init__(self, up, label, kind=None, operator=None, root=None):
        self.up, self.label, self.kind, self.operator = up, label, kind, operator
        # The id of the module here; type and number of items of the container here.
        self.module = self.size = None
        # The id of the parameter whose gradient this is, and its storage: a graph may lead there before a name does.
        self.parameter = None
        if up is None:
            self.root, self.items = root, None
        else:
            self.root, self.items = up.root, up.items
            if kind is None and (up.kind == SAVED or up.kind == STATE):
                self.kind, self.operator = up.kind, operator or up.operator


class Storage:
    """GPU memory, the paths to tensors that use it, and the offsets at which these begin (places)."""

    __slots__ = ("address", "bytes", "dtype", "elements", "kinds", "operator", "order", "paths", "places", "shape")

    def __init__(self, address, size):
        self.address, self.bytes = address, size
        # Elements of the largest tensor in it, and its type and shape.
        self.elements, self.dtype, self.shape = -1, None, None
        # The largest comes first.
        self.order = -size, address
        self.paths, self.kinds, self.places, self.operator = [], set(), set(), None


# The default is the real clock even if a test of the program replaces `time.perf_counter`.
def start_clock(now=time.perf_counter):
    """A function that has the seconds since this call."""
    start = now()
    return lambda: now() - start


class Walk:
    """Visits objects, and notes the tensors on a GPU."""

    def __init__(self, tensors, clock, end):
        self.tensors, self.clock, self.end = tensors, clock, end
        self.objects = _objects.Objects(tensors.directory)
        self.thread_start = time.thread_time() - clock()
        self.allocated_bytes, self.named_bytes = sum(tensors.allocated()), 0
        self.can_read_graphs = tensors.is_graph_stable()
        self.storages = {}
        # Visited objects, by id. They stay alive until the end, so that no id is used again.
        self.seen, self.kept = set(), []
        # (object, path): to visit, objects of PyTorch and others.
        self.near, self.queue = collections.deque(), collections.deque()
        # Objects of PyTorch to visit before the next other one.
        self.near_turns = MAX_NEAR_TURNS
        # To visit once these are empty, and to visit if memory is left without a name.
        self.late, self.deferred = [], []
        self.is_complete = self.can_read_graphs
        self.kinds = _objects.ByClass(lambda cls: "items" if cls is _objects.Items else tensors.kind(cls))
        self.kind = self.kinds.of
        # By id of a module: the module that contains it, and the label; its path. By id of a parameter: its path.
        self.parents, self.module_paths, self.parameter_paths = {}, {}, {}
        # Of each module, its path, its class and whether it trains.
        self.modules = []
        # The running functions of the user.
        self.calls = []
        # Optimizers, their parameters, and (parameter, bytes, id of the module) of parameters with gradients. A
        # parameter is the address of its storage, which a view of it shares, or its id if it has none.
        self.optimizers, self.optimized, self.trainable = 0, set(), []
        # The parameters with the learning rate 0, while others of their optimizer have another one.
        self.idle = set()
        # By id of a path: its name, and where that starts.
        self.resolved = {}

    def release(self):
        """Drops every reference to an object of the program."""
        self.objects.locals.forget()
        vars(self).clear()

    def has_all(self):
        return self.allocated_bytes - self.named_bytes <= NEGLIGIBLE * self.allocated_bytes

    def is_over(self):
        """Whether the time is over. What was not visited until then makes the names incomplete."""
        if self.clock() <= self.end:
            return False
        self.is_complete = False
        return True

    def in_time(self, values, interval=INTERVAL):
        """The values until the time is over."""
        for count, value in enumerate(values, 1):
            if not count % interval and self.is_over():
                return
            yield value

    # The queue -------------------------------------------------------------------------------------------------------

    def push(self, obj, path):
        kind = self.kind(type(obj)) if _objects.is_tracked(obj) else None
        if kind == "items":
            path.size, obj.path = (obj.type_name, len(obj.objects)), path
        if kind == "items" and len(obj.objects) <= SMALL:
            for index, item in enumerate(obj.objects):
                if _objects.is_tracked(item):
                    self.push(item, Path(path, obj.label(index)))
        elif kind is not None:
            (self.queue if kind in ("object", "items") else self.near).append((obj, path))

    def run(self, until):
        """Visits what is in the queues, at most until then."""
        end, self.end = self.end, min(until, self.end)
        for count, (obj, path) in enumerate(self.pending(), 1):
            self.visit(obj, path)
            if not count % INTERVAL and (self.is_over() or len(self.kept) > MAX_OBJECTS):
                self.is_complete = False
                for queue in (self.near, self.queue, self.late, self.deferred):
                    queue.clear()
        self.end = end

    def pending(self):
        """What is in the queues, until they are empty."""
        while self.near or self.queue or self.late:
            if not self.near and not self.queue:
                self.queue.extend(self.late)
                self.late.clear()
            if self.near and (self.near_turns > 0 or not self.queue):
                self.near_turns = max(self.near_turns - 1, 0)
                yield self.near.popleft()
            else:
                self.took_turns(1)
                yield self.queue.popleft()

    def took_turns(self, count):
        self.near_turns = min(self.near_turns + NEAR_TURNS * count, MAX_NEAR_TURNS)

    def visit_items(self, items, path):
        """Visits the next ones. The others follow once all that these lead to is visited."""
        if items.next and not items.found and not items.is_deferred:
            items.is_deferred = True
            self.deferred.append((items, path))
            return
        start, items.next = items.next, items.next + CHUNK
        self.took_turns(min(CHUNK, len(items.objects) - start))
        for index, item in enumerate(self.in_time(items.objects[start : items.next]), start):
            if _objects.is_tracked(item):
                below = Path(path, items.label(index))
                below.items = items
                self.visit(item, below)
        if items.next < len(items.objects):
            self.queue.append((items, path))

    def visit(self, obj, path):
        kind = self.kind(type(obj))
        try:
            if kind in ("tensor", "items") or self.is_new(obj):
                getattr(self, "visit_" + kind)(obj, path)
        except Exception:  # an object in a state that nobody expects is left out
            pass

    def visit_object(self, obj, path):
        for label, value in self.in_time(self.objects.children(obj)):
            self.push(value, Path(path, label))

    def is_new(self, obj):
        if id(obj) in self.seen:
            return False
        self.seen.add(id(obj))
        self.kept.append(obj)
        return True

    # Objects of PyTorch ----------------------------------------------------------------------------------------------

    def visit_tensor(self, tensor, path):
        has_storage = self.note(tensor, path)
        if not self.is_new(tensor):
            return
        for label, value in self.objects.attributes(tensor):
            kind = GRADIENT if "grad" in label else path.kind
            is_part = self.kind(type(value)) == "tensor"
            self.push(value, Path(path, label, kind if is_part else None))
        for label, part in () if has_storage else self.tensors.parts(tensor):
            self.visit_tensor(part, Path(path, label, path.kind))
        gradient = self.tensors.gradient(tensor)
        if gradient is not None:
            below = Path(path, ".grad", GRADIENT)
            below.parameter = id(tensor), self.storages.get(self.tensors.identity(tensor)[0])
            self.visit_tensor(gradient, below)
        node = self.tensors.grad_fn(tensor) if self.can_read_graphs else None
        if node is not None:
            self.near.append((node, Path(path, "", SAVED)))

    def note(self, tensor, path):
        """Notes the storage of a tensor. Returns False if it has none on a GPU."""
        found = self.tensors.storage(tensor)
        if found is None:
            return False
        address, size, offset = found
        storage = self.storages.get(address)
        if storage is None:
            storage = self.storages[address] = Storage(address, size)
            self.named_bytes += size
        elements = self.tensors.base.numel(tensor)
        if elements > storage.elements:
            storage.elements, storage.dtype = elements, self.tensors.dtype(tensor)
            storage.shape = self.tensors.shape(tensor)
        storage.kinds.add(path.kind or VARIABLE)
        if len(storage.places) < MAX_PLACES:
            storage.places.add(offset)
        if path.kind == SAVED:
            storage.operator = storage.operator or path.operator
        if len(storage.paths) < MAX_CANDIDATES:
            storage.paths.append(path)
        items = path.items
        while items is not None and not items.found:
            items.found = True
            items = items.path.items
        return True

    def visit_node(self, node, path):
        for saved_by, value in self.tensors.saved_by(node):
            self.push(value, Path(path, "", SAVED, saved_by))
        name = _objects.type_name(type(node))
        for label, value in self.objects.attributes(node):
            below = Path(path, "", SAVED, name + label)
            if self.kind(type(value)) == "tensor":
                self.push(value, below)
            else:  # perhaps the model, which has better names
                self.late.append((value, below))
        for following in self.in_time(self.tensors.next_nodes(node)):
            if id(following) not in self.seen:
                self.near.append((following, path))
        for hooks in gc.get_referents(node):
            if type(hooks) is not type and type(hooks) is not dict:
                self.late.append((hooks, Path(path, "", SAVED, name + ".hook")))

    def visit_module(self, module, path):
        """Visits the whole tree, so that parameters get their names before any list has given them one."""
        # The name of its class is better than one through what a library keeps for itself.
        if any(type(step.label) is str and step.label.startswith("._") for step in self.steps(path)):
            author = _objects.author_of_class(type(module), self.tensors.directory)
            path = Path(None, _objects.type_name(type(module)), root=path.root) if author == _objects.USER else path
        waiting = [(module, path)]
        for module, path in self.in_time(waiting):  # which grows
            path.module = id(module)
            self.module_paths[id(module)] = path
            own = self.objects.instance_dict(module)
            self.modules.append((path, type(module), own.get("training")))
            for key, kind in (("_parameters", PARAMETER), ("_buffers", BUFFER)):
                for name, value in self.in_time(self.items_of(own.get(key))):
                    if _objects.is_subtype(type(value), self.tensors.base):
                        below = Path(path, _objects.attribute_label(name), kind)
                        self.parameter_paths.setdefault(id(value), below)
                        if kind == PARAMETER and self.tensors.requires_grad(value):
                            self.trainable.append((*self.tensors.identity(value), id(module)))
                        self.visit_tensor(value, below)
            for name, value in self.in_time(self.items_of(own.get("_modules"))):
                if not _objects.is_subtype(type(value), self.tensors.module):
                    continue
                label = "[%s]" % name if type(name) is str and name.isdigit() else _objects.attribute_label(name)
                if value is not module:
                    self.parents.setdefault(id(value), (id(module), label))
                if self.is_new(value):
                    waiting.append((value, Path(path, label)))
            for label, value in self.objects.attributes(module):
                if label not in ("._parameters", "._buffers", "._modules"):
                    self.push(value, Path(path, label))
            for label, value in self.objects.of_class(type(module)):
                self.push(value, Path(None, _objects.type_name(type(module)) + label, root=path.root))

    def modules_around(self, module):
        """The id of a module, and of those that contain it, the outermost one last."""
        found = []
        while module is not None and len(found) < MAX_DEPTH:
            found.append(module)
            module = self.parents.get(module, (None,))[0]
        return found

    def visit_optimizer(self, optimizer, path):
        self.optimizers += 1
        state = self.objects.instance_dict(optimizer).get("state")
        for parameter, values in self.in_time(self.items_of(state)):
            of_parameter = Path(path, id(parameter), STATE)
            if _objects.is_subtype(type(values), dict):
                for name, value in self.in_time(self.items_of(values)):
                    self.push(value, Path(of_parameter, _objects.attribute_label(name), STATE))
            else:
                self.push(values, of_parameter)
        groups = self.objects.instance_dict(optimizer).get("param_groups")
        groups = [dict(self.items_of(group)) for group in (groups if type(groups) is list else ())]
        # A warmup begins with 0.
        rates = [max(rate_of(group, "lr"), rate_of(group, "initial_lr")) for group in groups]
        for group, rate in zip(groups, rates):
            if type(group.get("params")) is list:
                parameters = [self.tensors.identity(parameter)[0] for parameter in self.in_time(group["params"])]
                self.optimized.update(parameters)
                if rate == 0 and any(rates):
                    self.idle.update(parameters)
        for label, value in self.objects.attributes(optimizer):
            if value is not state:
                self.push(value, Path(path, label))

    def visit_sharded(self, sharded, path):
        """FSDP2's own record of a parameter, which knows the name that it has in the model."""
        name = self.objects.instance_dict(sharded).get("_param_fqn")
        name = _objects.plain(name) if type(name) is str else "?"
        for label, value in self.objects.attributes(sharded):
            part = "shard of " if "sharded_param" in label and "unsharded" not in label else "all-gathered "
            self.push(value, Path(None, part + name, PARAMETER, root=path.root))

    @staticmethod
    def items_of(value):
        return list(dict.items(value)) if _objects.is_subtype(type(value), dict) else []

    # Where names start -----------------------------------------------------------------------------------------------

    def author(self, frame):
        return _objects.author_of_frame(frame, self.tensors.directory)

    def is_users(self, frame):
        return self.author(frame) == _objects.USER

    def push_frames(self, author):
        for frame in self.in_time(frames_of_all_threads()):
            if self.author(frame) == author and self.is_new(frame):
                root = Root("frame", author, frames=[_objects.describe_frame(frame)])
                for name, value in self.in_time(self.objects.locals.of(frame)):
                    path = Path(None, _objects.plain(name), root=root)
                    if name == "self" and _objects.is_tracked(value):
                        self.queue.append((value, path))  # a model has better names
                    else:
                        self.push(value, path)

    def push_modules(self):
        """The variables of the user's modules, and of the user's functions whose module is nowhere else."""
        modules = [
            (name, _objects.module_dict(module))
            for name, module in self.in_time(list(sys.modules.items()))
            if _objects.author_of_module(module, self.tensors.directory) == _objects.USER
        ]
        frames = filter(self.is_users, self.in_time(frames_of_all_threads()))
        modules += [(dict.get(frame.f_globals, "__name__"), frame.f_globals) for frame in frames]
        for module, variables in modules:
            if type(module) is not str or not self.is_new(variables):
                continue
            file = variables.get("__file__")
            of_file = {"file": file} if type(file) is str else {}
            root = Root("module", module=_objects.plain(module), **of_file)
            prefix = "" if module == "__main__" else _objects.plain(module) + "."
            for name, value in self.in_time(list(dict.items(variables))):
                if type(name) is str and not (name.startswith("__") and name.endswith("__")):
                    self.push(value, Path(None, prefix + _objects.plain(name), root=root))

    def push_exceptions(self):
        handled = getattr(sys, "_current_exceptions", dict)()
        handled = [one[1] if type(one) is tuple else one for one in handled.values()]
        for error in [*handled, sys.exc_info()[1]]:
            self.push(error, Path(None, "the exception being handled", root=Root("exception")))
        for name in ("last_exc", "last_value"):
            self.push(sys.__dict__.get(name), Path(None, "sys." + name, root=Root("exception")))

    # Tensors that no variable reaches --------------------------------------------------------------------------------

    def note_unreached(self):
        """Notes tensors that only the garbage collector knows: values of running calls, and reference cycles."""
        search_s = self.search_s()
        if self.clock() + 2 * search_s > self.end:
            self.is_complete = False
            return
        self.push_values_of_calls()
        self.run(self.end)
        sized = []
        for tensor in self.in_time(self.unseen_tensors()):
            storage = self.tensors.storage(tensor)
            if storage and storage[0] not in self.storages:
                sized.append((storage[1], tensor))
        sized.sort(key=lambda one: -one[0])
        is_known = self.is_complete and not self.deferred
        value = Root("call" if is_known else "unreached"), ""
        alike = {}
        for index, pair in enumerate(self.in_time(sized)):
            tensor = pair[1]
            key = (self.tensors.dtype(tensor), self.tensors.shape(tensor))
            if index < MAX_CLIMBS and is_known:
                alike[key] = self.climb(pair, sized, search_s)
            root, label = alike.get(key, value)
            if id(tensor) not in self.seen:  # the climb may have found its name
                self.visit_tensor(tensor, Path(None, label, root=root))

    def push_values_of_calls(self):
        """The generators of the program that a loop goes through, and the list that a statement makes."""
        known, lists = gc.get_objects(), []
        for start in self.in_time(range(0, len(known), LISTED_INTERVAL), 1):
            part = known[start : start + LISTED_INTERVAL]  # few of the objects are worth more than a look at the class
            for obj in [one for one in part if type(one) is list or type(one) is types.GeneratorType]:
                if id(obj) in self.seen:
                    continue
                if type(obj) is list:
                    if obj is not self.kept and self.has_memory(obj):
                        lists.append(obj)
                elif obj.gi_frame is not None and self.is_users(obj.gi_frame):
                    root = Root("frame", frames=[_objects.describe_frame(obj.gi_frame)])
                    self.push(obj, Path(None, _objects.plain(obj.gi_frame.f_code.co_name), root=root))
        items = {id(item) for one in lists for item in self.in_time(one)}
        made = [one for one in lists if id(one) not in items]
        making = [call for call in self.calls if call.list_name]
        if len(made) == 1 and len(making) == 1:
            self.push(made[0], Path(None, making[0].list_name, root=Root("frame", frames=[making[0].frame])))

    def unseen_tensors(self):
        """More tensors that the garbage collector knows. They refer to their classes; before Python 3.9 do not."""
        classes = [cls for kind, cls in self.kinds.known.values() if kind == "tensor"]
        classes += [self.tensors.torch.Tensor, self.tensors.torch.nn.Parameter]
        known = gc.get_referrers(*classes) if sys.version_info >= (3, 9) else gc.get_objects()
        listed = self.in_time(known, LISTED_INTERVAL)
        return [obj for obj in listed if self.kind(type(obj)) == "tensor" and id(obj) not in self.seen]

    def has_memory(self, items):
        """Whether the first item of a list is a tensor of a GPU or a module, or a container that begins with one."""
        for _ in range(MAX_NESTED):
            item = next(iter(items.values() if type(items) is dict else items), None)
            if type(item) not in (list, tuple, dict):
                kind = self.kind(type(item))
                return kind == "module" or (kind == "tensor" and self.tensors.storage(item) is not None)
            items = item
        return False

    def climb(self, pair, pairs, search_s):
        """Goes up from a tensor to what refers to it. Returns the root and the label of its name: those of a cycle, or
        of a value that only C++ or the stack has.
        """
        level, passed = [pair[1]], {id(pair[1]): pair[1]}
        own = [pair, pairs, self.kept, passed, level]
        for _ in range(MAX_HOPS):
            if self.clock() + search_s > self.end:
                return Root("unreached"), ""
            known = [obj for obj in gc.get_referrers(*level) if id(obj) not in self.seen]
            above = [obj for obj in known if type(obj) is not FRAME and not is_one_of(obj, own)]
            below = {id(one) for obj in above for one in gc.get_referents(obj)}
            values = [obj for obj in level if id(obj) not in below]  # in a cycle, everything has a referrer
            if values:
                for obj in filter(self.is_holder, values):
                    self.push(obj, Path(None, _objects.type_name(type(obj)), root=Root("call")))
                self.run(self.end)
                return Root("call"), ""
            level = [obj for obj in above if id(obj) not in passed][:MAX_HOLDERS]
            own += [known, above, level, below, values]
            passed.update((id(obj), obj) for obj in level)
        holders = list(filter(self.is_holder, passed.values())) or list(passed.values())[-1:]
        return Root("cycle"), _objects.type_name(type(holders[0]))

    def is_holder(self, obj):
        """Whether the class of `obj` says what it is, unlike a plain container."""
        return self.kind(type(obj)) in ("object", "module") and not is_one_of(type(obj), (dict, list, tuple))

    def search_s(self):
        """Seconds that a search among all objects takes at most, if this process waits as often as until now."""
        slowdown = self.clock() / max(time.thread_time() - self.thread_start, 0.001)
        return sys.getallocatedblocks() * SEARCHED_S * max(slowdown, 1)

    # Text ------------------------------------------------------------------------------------------------------------

    def above(self, path):
        """The last label of the name, and the path before it. Below the outermost module the labels are modules'."""
        parent = self.parents.get(path.module)
        if parent is not None:
            return parent[1], self.module_paths[parent[0]]
        parameter, storage = path.parameter or (None, None)
        known = self.parameter_paths.get(parameter)
        return path.label, known or (min(storage.paths, key=rank) if storage else path.up)

    def steps(self, path):
        """The path, and those before it."""
        for _ in range(MAX_DEPTH):
            yield path
            path = self.above(path)[1]
            if path is None:
                return

    def name(self, path):
        return self.resolve(path)[0]

    def resolve(self, path):
        """The name at `path`, and where it starts: for modules, where the outermost one was found.

        The part before the last label is joined once for all names that begin with it.
        """
        label, before = self.above(path)
        if before is None:
            return self.join([label]), path.root
        known = self.resolved.get(id(before))
        if known is None:
            steps = list(self.steps(before))[::-1]
            known = self.resolved[id(before)] = self.join(self.above(step)[0] for step in steps), steps[0].root
        return self.join([known[0], label]), known[1]

    def join(self, labels):
        texts = [self.state_label(label) if type(label) is int else label for label in labels]
        text = "".join(text for text in texts if text not in TRANSPARENT)
        return text if len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."

    def state_label(self, parameter):
        """The label of a parameter's state: its name in the outermost module, as in a state dict."""
        path = self.parameter_paths.get(parameter)
        if path is None:
            return ".state[*]"
        outermost = self.modules_around(path.up.module)[-1]
        start = self.name(self.module_paths[outermost])
        inside = self.name(path)[len(start) :].replace("[", ".").replace("]", "")
        return ".state[%s]" % inside.lstrip(".")


FRAME = type(sys._getframe())


def is_one_of(obj, others):
    return any(obj is other for other in others)


def frames_of_all_threads():
    """The frames of this thread, then those of the others; outermost first.

    Without our own: if a variable of a function has the frame of that function, both outlive the call, with all frames
    around it and their variables.
    """
    import threading

    tops = sys._current_frames()
    tops.pop(threading.get_ident(), None)
    found, own = [], _objects.OWN_DIRECTORY
    for frame in (sys._getframe(1), *tops.values()):
        chain = [one for one in _objects.outward(frame) if not one.f_code.co_filename.startswith(own)]
        found += reversed(chain)
    return found


def rate_of(group, key):
    """A learning rate of a group of parameters; 0 if it has none, 1 if it is not a number of Python."""
    rate = group.get(key, 0)
    return rate if type(rate) in (int, float) else 1


def rank(path):
    """The smallest is the best name of a storage."""
    author = (_objects.USER, _objects.LIBRARY, _objects.PYTORCH).index(path.root.author)
    is_found = path.root.kind in ("frame", "module", "exception")
    by_kind = {PARAMETER: 0, BUFFER: 0, GRADIENT: 1, STATE: 1, SAVED: 4}
    return not is_found, author, by_kind.get(path.kind, 3 if path.up is None else 2)


class Table(dict):
    """Values with an index for each."""

    def index(self, value):
        return self.setdefault(value, len(self))


def describe(budget_s=BUDGET_S):
    """The names as in the header of this file, or None if this PyTorch cannot be read."""
    torch = sys.modules.get("torch")
    try:
        tensors = _tensors.Tensors(torch)
    except (AttributeError, StopIteration):
        return None
    was_collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()  # a collection would run finalizers of the program
    sys.setswitchinterval(budget_s)  # other threads would go on while the walk keeps what they drop
    walk = None
    try:
        # Functions and modes that can take the place of a tensor's own methods are off.
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            walk = Walk(tensors, start_clock(), budget_s * WALK_SHARE)
            walk.calls = running_calls(walk)
            visit_all(walk, budget_s)
            walk.end = budget_s * TEXT_SHARE
            described, calls = encode(walk), [{"frames": [call.frame]} for call in walk.calls]
            return {**described, "locals": describe_locals(walk), "calls": calls}
    finally:
        if walk is not None:
            walk.release()
        sys.setswitchinterval(interval)
        if was_collecting:
            gc.enable()


def visit_all(walk, budget_s):
    walk.push_modules()  # outside of every function, so the names that all know
    walk.push_frames(_objects.USER)
    walk.push_exceptions()
    walk.run(budget_s * USER_SHARE)
    for author in (_objects.LIBRARY, _objects.PYTORCH):
        if not walk.has_all():
            walk.push_frames(author)
            walk.run(walk.clock() + budget_s * (WALK_SHARE - USER_SHARE) / 4)
    if not walk.has_all() and walk.is_complete:
        walk.queue.extend(walk.deferred)
        walk.deferred.clear()
        # Not all of the time: what is not reached is at least listed.
        walk.run(walk.end - SEARCHES * walk.search_s())
    if not walk.has_all():
        walk.note_unreached()
        walk.run(walk.end)


def encode(walk):
    texts, shapes, roots = Table({None: 0}), Table(), Table()
    containers, looked_at = [], set()
    is_complete = walk.is_complete
    # If optimizers step copies of a model's parameters, only the model has parameters.
    parameters = walk.optimized if {parameter for parameter, _, _ in walk.trainable} <= walk.optimized else ()
    rows = []
    storages = sorted(walk.storages.values(), key=operator.attrgetter("order"))
    for storage in walk.in_time(storages[:MAX_ROWS]):
        path = min(storage.paths, key=rank)
        name, root = walk.resolve(path)
        kind = PARAMETER if storage.address in parameters else min(storage.kinds, key=KINDS.index)
        rows.append(
            (
                storage.address,
                storage.bytes,
                KINDS.index(kind),
                texts.index(name or None),
                roots.index(root),
                texts.index(storage.operator),
                int(path.kind == SAVED),
                texts.index(storage.dtype),
                -1 if storage.shape is None else shapes.index(storage.shape),
                len(storage.places),
            )
        )
        for step in walk.steps(path):
            if id(step) in looked_at:
                break
            looked_at.add(id(step))
            if step.size is not None:
                containers.append((texts.index(walk.name(step)), texts.index(step.size[0]), step.size[1]))
    # Modules may not have all parameters of the optimizers: an optimizer steps shards, flat buffers or copies of
    # parameters. Then which modules it trains is not known.
    is_trained_known = walk.is_complete and walk.optimized <= {parameter for parameter, _, _ in walk.trainable}
    # Another rank may have an optimizer.
    are_all_known = is_trained_known and walk.optimized and walk.tensors.world_size() == 1
    outermost = [(path, is_training) for path, _, is_training in walk.modules if path.module not in walk.parents]
    named = {
        "untrained": modules_without(walk, walk.optimized) if are_all_known else [],
        "idle": modules_without(walk, walk.optimized - walk.idle) if is_trained_known and walk.idle else [],
        "adapted": adapted(walk),
        # The outermost modules that do not train.
        "evaluating": [walk.name(path) for path, is_training in outermost if is_training is False][:MAX_UNTRAINED],
    }
    return {
        "version": 1,
        "complete": is_complete and len(rows) == len(storages),
        "kinds": list(KINDS),
        "shapes": [list(shape) for shape in shapes],
        "roots": [root.described for root in roots],
        "containers": containers,
        "optimizers": walk.optimizers,
        **{key: [texts.index(name) for name in names] for key, names in named.items()},
        "alone": [[(call, texts.index(name)) for call, name in places] for places in alone(walk)],
        "tensors": rows,
        **describe_modules(walk, texts),
    }


def describe_modules(walk, texts):
    """The modules whose class has a `forward`, and where that is. `texts` gets their names."""
    forwards, of_class, rows = Table(), {}, []
    for path, cls, _ in walk.in_time(walk.modules[:MAX_MODULES]):
        if id(cls) not in of_class:
            code = _objects.forward_of(cls)
            is_own = code is not None and code.co_name == "forward"
            place = (code.co_filename, code.co_firstlineno, _objects.last_line(code)) if is_own else None
            of_class[id(cls)] = place and forwards.index(place)
        if of_class[id(cls)] is not None:
            rows.append((texts.index(walk.name(path)), texts.index(_objects.type_name(cls)), of_class[id(cls)]))
    return {
        "texts": list(texts),
        "modules": rows,
        "forwards": [
            {"frames": [{"filename": file, "line": first, "name": "forward"}], "last_line": last}
            for file, first, last in forwards
        ],
    }


def modules_without(walk, needed):
    """The names of the outermost modules that have none of the parameters `needed`, those with most bytes first."""
    trained, sizes = set(), collections.Counter()
    for parameter, size, module in walk.in_time(walk.trainable):
        around = walk.modules_around(module)
        if parameter in needed:
            trained.update(around)
        for one in around:
            sizes[one] += size
    parent = {module: walk.parents.get(module, (None,))[0] for module in sizes}
    found = [one for one in sizes if one not in trained and (parent[one] is None or parent[one] in trained)]
    found.sort(key=lambda one: -sizes[one])
    return [walk.name(walk.module_paths[one]) for one in found[:MAX_UNTRAINED] if sizes[one]]


def adapted(walk):
    """The names of the outermost modules with adapters whose other parameters are trained, too."""
    labels = {module: label for module, (_, label) in walk.parents.items()}
    names = {path.module: _objects.type_name(cls) + labels.get(path.module, "") for path, cls, _ in walk.modules}
    # By adapter, or None: bytes of each module in it that has a parameter.
    parts = collections.defaultdict(collections.Counter)
    for parameter, size, module in walk.in_time(walk.trainable if walk.is_complete else ()):
        if parameter in walk.optimized:
            around = walk.modules_around(module)
            found = [place for place, one in enumerate(around) if ADAPTER.search(names.get(one, ""))]
            place = max(found[-1] - 1, 0) if found else 0
            parts[around[found[-1]] if found else None][around[place]] += size
    trained, adapters = collections.Counter(), set()
    for adapter, sizes in parts.items():
        for module, size in sizes.items():
            # A wrapper has the layer that it adapts, too.
            is_base = adapter is None or size >= MIN_BASE * (sum(sizes.values()) - size)
            trained[walk.modules_around(module)[-1], is_base] += size
            adapters.update(() if is_base else (adapter,))
    found = {module for module, _ in trained if trained[module, True] >= MIN_BASE * trained[module, False] > 0}
    return [walk.name(walk.module_paths[one]) for one in found if len(adapters) > 1][:MAX_UNTRAINED]


def alone(walk):
    """The variables of each value with memory that no other object has: (index of a call, name)."""
    places, values = {}, {}
    for index, call in enumerate(walk.calls):
        for name, value in walk.in_time(call.variables.items()):
            is_wanted = id(value) in values or len(values) < MAX_ALONE
            if is_wanted and type(name) is str and has_memory_alone(walk, value):
                values[id(value)] = value
                places.setdefault(id(value), []).append((index, _objects.plain(name)))
    if not values or walk.clock() + walk.search_s() > walk.end:
        return []
    # Another running function may have it as a variable.
    calls = {call.identity for call in walk.calls}
    others = (frame for frame in frames_of_all_threads() if id(frame) not in calls)
    held = {id(value) for frame in others for _, value in walk.objects.locals.of(frame)}
    filled = (variables for _, variables in walk.objects.locals.filled)
    own = [walk.kept, values, *filled, *(call.variables for call in walk.calls)]
    for obj in gc.get_referrers(*values.values()):
        # Namespaces have the variables themselves; what is left of a walk is its own.
        is_namespace = type(obj) is FRAME or (type(obj) is dict and "__name__" in obj) or is_one_of(obj, own)
        if not is_namespace and type(obj) is not types.CellType:
            held.update(map(id, gc.get_referents(obj)))
    return [places[one] for one in values if one not in held]


def has_memory_alone(walk, value):
    """Whether it is a module, an optimizer, or a tensor whose memory no other tensor and no graph is known to use."""
    kind = walk.kind(type(value))
    if kind != "tensor":
        return kind in ("module", "optimizer")
    storage = walk.storages.get((walk.tensors.storage(value) or (0,))[0])
    return storage is not None and len(storage.paths) == 1 and storage.kinds == {VARIABLE}


def running_calls(walk):
    """The running functions of the user: on this thread, or on the one that waits for this backward pass."""
    waiting = [frame for frame in sys._current_frames().values() if walk.tensors.waits_for_backward(frame)]
    return calls_from(walk, sys._getframe()) or (calls_from(walk, waiting[0]) if len(waiting) == 1 else [])


# The frame of a running function and its id, the list that its line makes, and its variables.
Call = collections.namedtuple("Call", "frame identity list_name variables")


def calls_from(walk, innermost):
    """A `Call` for each function of the user from a frame outwards."""
    found = []
    for frame in itertools.islice(filter(walk.is_users, _objects.outward(innermost)), MAX_CALLS):
        described = _objects.describe_frame(frame)
        line = described["line"]
        made = LIST.match("".join(_source.read(described["filename"])[line - 1 : line]))
        list_name = made["target"] if made and not described["name"].startswith("<") else None
        is_module = frame.f_locals is frame.f_globals
        variables = dict(frame.f_globals if is_module else walk.objects.locals.of(frame))
        found.append(Call(described, id(frame), list_name, variables))
    return found


def describe_locals(walk):
    """The tensors among the variables of the function of the user that failed."""
    if not walk.calls:
        return None
    found = []
    for name, value in walk.in_time(walk.calls[0].variables.items()):
        if type(name) is str and _objects.is_subtype(type(value), walk.tensors.base) and len(found) < MAX_LOCALS:
            is_plain = type(value) is walk.tensors.torch.Tensor or walk.tensors.storage(value) is not None
            shape = walk.tensors.shape(value) if is_plain else None
            if shape is not None:
                found.append((_objects.plain(name), walk.tensors.dtype(value), list(shape)))
    return {"frames": [walk.calls[0].frame], "tensors": found}
