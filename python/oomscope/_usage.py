"""The use that a program makes of a value that it read from the GPU, by its source.

A dry run reads zeros, so its requests are those of a GPU only if no branch, loop or size depends on what was read.
`find` follows the value through the source, from the expression that read it: through operators, variables, attributes
and returns, until it is printed or logged ("report"), decides a branch or a loop ("branch") or a size ("size"). Where
the source is missing, or the value goes into a function that is not known, the answer is "unknown".

Names stand for variables: a variable counts as read wherever its name is in its function or module, an attribute in
its file, the user's modules and the functions that run. That finds too many uses rather than too few.
"""

import ast
import dis
import functools
import linecache
import sys

from . import _objects

REPORT, BRANCH, SIZE, UNKNOWN = "report", "branch", "size", "unknown"
# Files whose reads are for people, or whose answer does not change the memory. With functions: only these.
HARMLESS_CODE = (
    ("torch/_tensor_str.py", ""),
    ("torch/_tensor.py", "__format__ __repr__ __reduce_ex__ _reduce_ex_internal __deepcopy__"),
    # Zero means that no gradient overflows, so the step is made: the larger case.
    ("torch/amp/grad_scaler.py", "_maybe_opt_step update"),
    ("deepspeed/runtime/utils.py", "is_invalid_grad_norm"),
    ("torch/optim/lr_scheduler.py", ""),  # only rates depend on it
    ("torch/serialization.py", ""),  # copies of tensors for a file
    ("torch/storage.py", ""),
    ("torch/_inductor/runtime/triton_heuristics.py", "copy_args_to_cpu_if_needed"),  # and back after each trial
    ("torch/distributed/checkpoint", ""),
    ("safetensors/torch.py", ""),
    # Lengths of objects, which ranks exchange otherwise.
    (
        "torch/distributed/distributed_c10d.py",
        "all_gather_object gather_object broadcast_object_list scatter_object_list recv_object_list",
    ),
    # Shapes that every rank has; what the comparison finds is ignored, see _ranks.py.
    ("oomscope/_ranks.py", "compare_shapes"),
    # Without an answer the stages exchange the shapes of a trial pass, which needs no more than a step.
    ("torch/distributed/pipelining/schedules.py", "_initialize_pipeline_distributed_state"),
    # The sum of the losses, which leaves out those that are not finite.
    ("transformers/trainer.py", "_inner_training_loop _maybe_log_save_evaluate _run_epoch _finalize_training log"),
    # Without an answer the mask is made: the larger case.
    ("transformers/masking_utils.py", "_ignore_causal_mask_sdpa _ignore_bidirectional_mask_sdpa"),
    # Pairs of predictions and targets: as many as there are targets.
    ("transformers/loss/", "forward"),
    # Warnings about special tokens; the longest sequence is generated, where a real run may end earlier.
    ("transformers/generation/utils.py", "_prepare_special_tokens _get_logits_processor generate _sample __call__"),
    ("transformers/generation/stopping_criteria.py", ""),
    ("vllm/v1/worker/gpu/async_utils.py", ""),
    # Lengths of the batch that a graph is captured with, which the host knows.
    ("sglang/srt/model_executor/runner/", "capture_prepare"),
    ("sglang/srt/layers/attention/", "_init_full_cg_decode_metadata"),
    ("vllm/v1/outputs.py", "to_cpu_nonblocking"),
    # The parameters, or lengths that the host knows.
    ("torch/nn/modules/module.py", "convert"),
    ("lightning/fabric/utilities", "batch_to cpu to_item"),  # of the metrics in its log
    ("lightning/pytorch/utilities/data.py", "has_len_all_ranks"),
)
# Operators that read whether a library has failed.
HARMLESS_OPERATORS = frozenset(("_linalg_check_errors",))
# Functions by the last part of their names. The value ends in text, a log or a file.
REPORTS = frozenset(
    "print log log_dict log_metrics info debug warning warn error exception critical write writelines write_line "
    "add_scalar add_scalars add_histogram add_text set_postfix set_postfix_str set_description set_description_str "
    "report echo format str repr display log_metric track define_metric scalar scalars isinstance type id hasattr "
    "callable len save save_pretrained save_checkpoint save_state save_state_dict save_model dump dumps save_file "
    "save_safetensors exit _exit abort fail assert_close assert_allclose assert_equal assert_almost_equal is_tensor "
    "is_floating_point is_available state_dict current_device memory_allocated max_memory_allocated memory_reserved "
    "max_memory_reserved synchronize time perf_counter monotonic sleep flush close join basename makedirs exists "
    "histogram plot figure savefig legend title xlabel ylabel".split()
)
# The result depends on the value and on nothing else.
PASSES = frozenset(
    "float int bool complex round abs min max sum mean median std var sqrt exp exp2 log2 log10 log1p pow floor ceil "
    "isnan isinf isfinite item tolist numpy cpu detach to double half bfloat16 clone float32 float64 array asarray "
    "tensor as_tensor from_numpy stack concatenate argmax argmin argsort sorted reversed enumerate zip list tuple "
    "dict set deepcopy copy all any equal allclose isclose logical_not logical_and logical_or accuracy_score f1_score "
    "precision_score recall_score get items keys values squeeze unsqueeze astype nanmean clamp clip percentile "
    "quantile norm dot prod cumsum divmod setdefault pop map next iter str_to_float contiguous view_as real imag "
    "__float__ __int__ upper lower strip type_as flatten ravel gather gather_for_metrics linear_sum_assignment "
    "nan_to_num".split()
)
# The value is kept in the object before the dot.
KEEPS = frozenset("append add extend insert update appendleft put put_nowait push record add_batch accumulate".split())
# The value becomes a size, or a number of times.
SIZES = frozenset(
    "range zeros ones empty full rand randn randint arange eye linspace zeros_like ones_like repeat repeat_interleave "
    "expand reshape view narrow split chunk unfold pad new_zeros new_empty new_ones new_full pack_padded_sequence "
    "split_with_sizes tile resize_ interpolate topk islice".split()
)
# Attributes that no value changes.
FIXED_ATTRIBUTES = frozenset(
    "shape dtype device ndim requires_grad is_cuda grad_fn size dim numel nbytes itemsize".split()
)
# Attributes of a tensor, and of an array, that are its size; and methods whose result has as many elements.
SIZE_ATTRIBUTES = frozenset("shape size numel nelement nbytes".split())
VIEWS = frozenset("squeeze flatten view t tolist cpu numpy long int to clone detach unique sort contiguous".split())
# Operators that read the size of their result, of which the recording has the maximum.
SIZED_OPERATORS = frozenset(
    "nonzero masked_select _unique2 unique_dim unique_consecutive unique_dim_consecutive".split()
)
# The function of torch.nn.Module that runs a network.
NETWORK_CALL = "_wrapped_call_impl"
MAX_STEPS = 20000
# With more functions of a name, the one that is called is not known.
MAX_FUNCTIONS = 8


def is_torch(path):
    return "/torch/" in path.replace("\\", "/")


def find(places, truths=frozenset(), operators="", files=(), seen=None):
    """What becomes of a value: (one of the words above, the place that decides as (file, line, function) or None).

    `places` are the frames of the read, innermost first, as (code, index of the last instruction, line). `truths` are
    those of the condition that the value is in (see `_values.condition`): where all were false, its branch has not run.
    `files` are the user's (see `users_files`), and `seen` is what ran (see `_observed`).
    """
    if is_harmless(places) or not HARMLESS_OPERATORS.isdisjoint(operators.split()):
        return REPORT, None
    flow = Flow(places, truths, files, seen)
    flow.is_size = not SIZED_OPERATORS.isdisjoint(operators.split())
    flow.run()
    return flow.result, flow.place


def reaches(places, lines):
    """Whether a value that was read reaches one of these statements, each a (file, line), or decides if it runs."""
    flow = Flow(places, frozenset(), users_files())
    flow.run()
    followed = {node for node, *_ in flow.seen}
    for filename, line in lines:
        source = source_of(filename)
        for statement in ast.walk(source.tree):
            if isinstance(statement, ast.stmt) and statement.lineno <= line <= statement.end_lineno:
                heads = [getattr(statement, name, None) for name in ("test", "iter")]
                heads = heads if hasattr(statement, "body") else [statement, *exits_before(source, statement)]
                if any(node in followed for head in heads if head for node in ast.walk(head)):
                    return True
    return False


def exits_before(source, statement):
    """The conditions under which the function of `statement` ends before it."""
    function = source.enclosing(statement, FUNCTIONS)
    for node in ast.walk(function) if function is not None else ():
        is_before = isinstance(node, ast.If) and node.lineno < statement.lineno
        if is_before and any(isinstance(inner, (ast.Return, ast.Raise)) for inner in [*node.body, *node.orelse]):
            yield node.test


def is_harmless(places):
    """Whether library code reads it that prints, or that needs the same memory for every value."""
    for code, _, _ in places:
        if is_harmless_code(code) or not is_torch(code.co_filename):
            return is_harmless_code(code)
    return False


def is_harmless_code(code):
    path = code.co_filename.replace("\\", "/")
    return any(part in path and (not names or code.co_name in names.split()) for part, names in HARMLESS_CODE)


def is_surely_zero(frame):
    """Whether `frame` looks for random numbers beyond limits that none of them reaches."""
    # `p` is the probability of a number within the limits.
    return frame.f_code.co_name == "_no_grad_trunc_normal_" and _objects.variable(frame, "p") == 1.0


class Source:
    """A parsed file, with the parent of every node."""

    def __init__(self, filename):
        self.filename = filename
        self.parents, self.names, self.attributes, self.functions = {}, {}, {}, {}
        # By name in this file: the module that it is, or is of, and the name there, or None.
        self.imported = {}
        try:
            self.tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            self.tree = ast.Module([], [])
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.names.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self.attributes.setdefault(node.attr, []).append(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Import):
                names = {alias.asname or alias.name.split(".")[0]: (alias.name, None) for alias in node.names}
                self.imported.update(names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                self.imported.update({alias.asname or alias.name: (module, alias.name) for alias in node.names})

    @functools.lru_cache(maxsize=None)  # noqa: B019, a source is kept for ever
    def at(self, code, instruction, line):
        """The expressions that an instruction computes: by its position from Python 3.11 on, else all of its line."""
        if hasattr(code, "co_positions"):
            position = list(code.co_positions())[instruction // 2]
            kinds = (ast.expr, ast.Assert, ast.If, ast.While)
            nodes = [node for node in ast.walk(self.tree) if isinstance(node, kinds) and span(node) == position]
            if nodes:
                return [without_not(operand(without_not(nodes[0]), code, instruction, position))]
        on_line = [node for node in ast.walk(self.tree) if getattr(node, "lineno", None) == line]
        calls = [node for node in on_line if isinstance(node, (ast.Call, ast.JoinedStr))]
        tests = [node.test for node in on_line if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp))]
        return calls + tests

    def functions_of(self, code):
        """The functions that `code` may be of: one, unless the file has changed or has no such function."""
        named = self.functions.get(code.co_name, ())
        return [function for function in named if code.co_firstlineno in first_lines(function)]

    def around(self, node):
        """`node`, and those that contain it, the innermost first."""
        while node is not None:
            yield node
            node = self.parents.get(node)

    def enclosing(self, node, kinds):
        return next((one for one in self.around(node) if isinstance(one, kinds)), None)


source_of = functools.lru_cache(maxsize=None)(Source)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def read_by(frame):
    """The source of `frame`, and the expression that it reads now, or None if that may be one of several."""
    source = source_of(frame.f_code.co_filename)
    nodes = source.at(frame.f_code, frame.f_lasti, frame.f_lineno)
    return source, nodes[0] if len(nodes) == 1 else None


def is_code_of(code, source, function):
    """Whether `code` is that of a function. `torch.no_grad` renames the one around the decorated function."""
    is_here = code.co_filename == source.filename and code.co_firstlineno in first_lines(function)
    return code.co_name == function.name or is_here


def first_lines(function):
    return [function.lineno, *(decorator.lineno for decorator in function.decorator_list)]


def is_generator(function):
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


def span(node):
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def without_not(node):
    """The expression whose truth is read by `node`: by a statement with a condition, or by `not`."""
    while (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or isinstance(node, ast.stmt):
        node = node.test if isinstance(node, ast.stmt) else node.operand
    return node


def operand(node, code, instruction, position):
    """The operand of `a and b` that an instruction reads, where all of them have the position of the whole."""
    if not isinstance(node, ast.BoolOp):
        return node
    jumps = [
        item.offset
        for item in dis.get_instructions(code)
        if "_IF_" in item.opname and tuple(item.positions) == position
    ]
    is_clear = len(jumps) == len(node.values) and instruction in jumps
    return node.values[jumps.index(instruction)] if is_clear else node


def is_scheduler(source, step):
    """Whether `step` is `X.step`, and a scheduler of learning rates is assigned to `X`."""
    name = last_name(getattr(step, "value", None))
    for node in ast.walk(source.tree) if name else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            created = last_name(node.value.func) or ""
            is_created_so = created.endswith("LR") or "Plateau" in created or "scheduler" in created.lower()
            if is_created_so and name in map(last_name, node.targets):
                return True
    return False


def last_name(node):
    """`c` of `a.b.c`, or None."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def root_name(node):
    """`a` of `a.b[0].c`, or None."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return getattr(node, "id", None)


class Flow:
    def __init__(self, places, truths, files, seen=None):
        self.places, self.truths, self.observed = places, truths, seen
        # The size of the value is what was read, not its elements; sizes come of it, but none that is larger.
        self.is_size = self.is_bounded = False
        self.result, self.place = REPORT, None
        self.seen, self.entered = set(), set()
        # By function that the value was followed into: the calls; and those that return it, or by whose value they end.
        self.callers, self.returning = {}, set()
        self.steps = 0
        # The other files in which an attribute or a function may be: the user's, and those on the stack.
        running = [code.co_filename for code, _, _ in places if not is_torch(code.co_filename)]
        self.files = list(dict.fromkeys([*running, *files]))

    def run(self):
        try:
            self.start(0)
        except RecursionError:
            self.found(UNKNOWN, None)

    def found(self, usage, place):
        order = (REPORT, UNKNOWN, SIZE, BRANCH)
        if order.index(usage) > order.index(self.result):
            self.result, self.place = usage, place

    def start(self, depth):
        """Follows the value that frame `depth` gets from an instruction."""
        if depth >= len(self.places):
            return  # the end of the program's own frames
        code, instruction, line = self.places[depth]
        source = source_of(code.co_filename)
        nodes = source.at(code, instruction, line)
        if not nodes:
            self.found(UNKNOWN, (code.co_filename, line, code.co_name))
        for node in nodes:
            self.follow(source, node, depth)

    def give_up(self, usage, source, node):
        name = getattr(source.enclosing(node, FUNCTIONS), "name", "<module>")
        self.found(usage, (source.filename, getattr(node, "lineno", 0), name))

    def sources(self, source, name):
        """`source`, and the others whose text has `name`."""
        yield source
        for filename in self.files:
            if filename != source.filename and any(name in line for line in linecache.getlines(filename)):
                yield source_of(filename)

    def follow(self, source, node, depth):
        """Follows the value of `node`. `depth` is the frame that it is in; None in a function that it was passed to."""
        self.steps += 1
        if self.result == BRANCH or (node, depth, self.is_size) in self.seen or self.steps > MAX_STEPS:
            if self.steps > MAX_STEPS:
                self.give_up(UNKNOWN, source, node)
            return
        self.seen.add((node, depth, self.is_size))
        if not self.has_run(source, node):
            return
        parent = source.parents.get(node)
        if self.is_size and self.follow_size(source, node, parent, depth):
            return
        texts = (ast.JoinedStr, ast.FormattedValue)
        if isinstance(node, texts) or isinstance(parent, (ast.Expr, *texts, ast.Raise, ast.Assert, ast.Delete)):
            return
        if isinstance(parent, ast.Call):
            self.follow_call(source, node, parent, depth)
        elif isinstance(parent, ast.keyword):
            self.follow_call(source, parent, source.parents[parent], depth)
        elif isinstance(parent, ast.Attribute):
            self.follow_attribute(source, parent, depth)
        elif isinstance(parent, ast.Subscript) and node is parent.value and not isinstance(parent.ctx, ast.Load):
            return  # a place in a container is assigned
        elif isinstance(parent, ast.Slice):
            if not self.is_bounded:
                self.give_up(SIZE, source, node)
        elif isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.IfExp) and node is parent.test):
            is_operand = isinstance(parent, ast.BoolOp)
            others = parent.values[parent.values.index(node) + 1 :] if is_operand else (parent.body, parent.orelse)
            if any(self.is_risky(source, other) for other in others):
                self.give_up(BRANCH, source, node)
            self.follow(source, parent, depth)
        elif isinstance(parent, ast.comprehension):
            if node is parent.iter:
                self.assign(source, parent.target, depth)
            elif self.is_risky(source, source.parents[parent]):  # the condition decides what is in the result
                self.give_up(BRANCH, source, node)
            self.follow(source, source.parents[parent], depth)
        elif isinstance(parent, (ast.If, ast.While)):
            self.branch(source, parent, depth)
        elif isinstance(parent, (ast.For, ast.AsyncFor)):
            if node is parent.iter:
                self.assign(source, parent.target, depth)
        elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            for target in getattr(parent, "targets", None) or [parent.target]:
                self.assign(source, target, depth)
            if isinstance(parent, ast.NamedExpr):
                self.follow(source, parent, depth)
        elif isinstance(parent, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops):
            return  # as in `loss is None`
        elif isinstance(parent, ast.Return):
            self.follow_return(source, parent, depth)
        elif isinstance(parent, ast.Lambda) and depth is not None:
            self.start(depth + 1)
        elif isinstance(parent, ast.expr):
            self.follow(source, parent, depth)
        else:
            self.give_up(UNKNOWN, source, node)

    def has_run(self, source, node):
        """Whether the statement of `node` ran, as far as known. One in no function ran before it was looked at."""
        if self.observed is None or source.enclosing(node, FUNCTIONS) is None:
            return True
        statement = source.enclosing(node, ast.stmt)
        body = getattr(statement, "body", None)
        end = body[0].lineno if isinstance(body, list) and body else statement.end_lineno + 1
        return self.observed.has_run(source.filename, range(statement.lineno, max(end, statement.lineno + 1)))

    def follow_size(self, source, node, parent, depth):
        """Follows the size of a tensor, as in `len(x)` and `x.shape`. False where `node` is kept or passed on."""
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return True
        if isinstance(parent, ast.Attribute):
            call = source.parents.get(parent)
            is_called = isinstance(call, ast.Call) and call.func is parent
            if parent.attr in SIZE_ATTRIBUTES:
                self.follow_number(source, call if is_called else parent, depth)
            elif is_called and parent.attr in VIEWS:
                self.follow(source, call, depth)
            return True
        if isinstance(parent, ast.Call) and last_name(parent.func) == "len":
            self.follow_number(source, parent, depth)
            return True
        if isinstance(parent, ast.Subscript):
            if node is parent.value:
                self.follow(source, parent, depth)
            return True  # else it selects
        if isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Compare)):
            self.is_size, self.is_bounded = False, True
            return False
        is_moved = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return, ast.Tuple, ast.List, ast.Starred, ast.keyword)
        is_users = isinstance(parent, ast.Call) and self.functions_of(source, parent.func)
        return not isinstance(parent, is_moved) and not is_users

    def follow_number(self, source, node, depth):
        self.is_size, self.is_bounded = False, True
        self.follow(source, node, depth)
        self.is_size = True

    # Calls and functions ---------------------------------------------------------------------------------------------

    def follow_attribute(self, source, attribute, depth):
        call = source.parents.get(attribute)
        is_called = isinstance(call, ast.Call) and call.func is attribute
        ends = is_called and (attribute.attr in KEEPS or attribute.attr in REPORTS)
        if attribute.attr not in FIXED_ATTRIBUTES and isinstance(attribute.ctx, ast.Load) and not ends:
            self.follow(source, call if is_called else attribute, depth)

    def follow_call(self, source, argument, call, depth):
        if argument is call.func:
            return self.follow(source, call, depth)
        name = last_name(call.func)
        functions = self.functions_of(source, call.func)
        if not functions:  # a function of the program outranks a known one of the same name
            if name in REPORTS:
                return None
            if name in SIZES and not (name == "islice" and argument is call.args[0]):
                return None if self.is_bounded else self.give_up(BRANCH if name == "range" else SIZE, source, call)
            if name in KEEPS and isinstance(call.func, ast.Attribute):
                return self.assign(source, call.func.value, depth)
            if name in PASSES:
                return self.follow(source, call, depth)
        if name == "step" and is_scheduler(source, call.func):
            return None  # only rates depend on it
        callees = None if self.observed is None else self.observed.callees(source.filename, span(call))
        if callees or (callees is not None and not functions):
            return self.follow_callees(source, argument, call, depth, callees)
        if not 0 < len(functions) <= MAX_FUNCTIONS:
            return self.give_up(UNKNOWN, source, call)
        for target, function in functions:
            parameters = parameters_of(function, argument, call)
            if not parameters:
                return self.give_up(UNKNOWN, source, call)
            for parameter in parameters:
                self.variable(target, parameter, function, None)
        if name in KEEPS and isinstance(call.func, ast.Attribute):
            self.assign(source, call.func.value, depth)  # it may be an object of a library after all
        return self.follow(source, call, depth)

    def follow_callees(self, source, argument, call, depth, callees):
        is_kept = not callees  # no call, or one that was not noted
        for kind, callee in callees:
            code = callee if kind == "function" else None
            if code is not None and code.co_name == NETWORK_CALL and is_torch(code.co_filename):
                continue  # the program reads what it makes of the value at another place
            if kind == "class":
                fields = [*getattr(callee, "__dataclass_fields__", ()), *getattr(callee, "_fields", ())]
                index = call.args.index(argument) if argument in call.args else len(fields)
                is_star = isinstance(argument, ast.Starred)
                given = fields[index:] if is_star else fields[index : index + 1]
                taken = [argument.arg] if isinstance(argument, ast.keyword) else given
                for field in set(taken).intersection(fields):
                    self.attribute(source, field)
                code = None if fields else getattr(callee.__init__, "__code__", None)
                self.follow(source, call, depth)
            if code is not None and uses_torch(code.co_filename):
                if not self.follow_into(source, argument, call, depth, code):
                    return self.give_up(UNKNOWN, source, call)
            elif kind == "module" and knows_torch(callee):
                return self.give_up(UNKNOWN, source, call)
            elif kind != "class":
                is_kept = True
        if is_kept:
            receiver = getattr(call.func, "value", None)
            root = root_name(receiver)
            if root is not None and root not in source.imported:
                self.assign(source, receiver, depth)
            self.follow(source, call, depth)
        return None

    def follow_into(self, source, argument, call, depth, code):
        """Follows `argument` into the function of `code`, and `call` if it returns the value. False if it cannot."""
        target = source_of(code.co_filename)
        functions = target.functions_of(code)
        parameters = parameters_of(functions[0], argument, call) if len(functions) == 1 else []
        if not parameters or is_torch(code.co_filename):
            return False
        if code.co_filename not in self.files:
            self.files.append(code.co_filename)
        self.callers.setdefault(functions[0], []).append((source, call, depth))
        for parameter in parameters:
            self.variable(target, parameter, functions[0], None)
        if functions[0] in self.returning:
            self.follow(source, call, depth)
        return True

    def functions_of(self, source, called):
        """The functions of the program that `called` may be, each with its source: those of its name in this file; of a
        method, or an imported name, else those in the other files of the user.
        """
        name = last_name(called)
        functions = [(source, function) for function in source.functions.get(name, ())]
        if functions or name is None:
            return functions
        imported = source.imported.get(root_name(called))
        if imported is None:
            if isinstance(called, ast.Name):
                return []  # a builtin function, or a variable
        elif not is_users_module(imported[0], source.filename):
            return []
        elif isinstance(called, ast.Name):
            name = imported[1] or name
        is_module = imported is not None and (imported[1] is None or ".".join(imported) in sys.modules)
        is_method = isinstance(called, ast.Attribute) and not is_module
        return [
            (other, function)
            for other in self.sources(source, "def " + name)
            for function in other.functions.get(name, ())
            if _objects.is_users_file(other.filename)
            and (not is_method or isinstance(other.parents.get(function), ast.ClassDef))
        ]

    def follow_return(self, source, node, depth):
        function = source.enclosing(node, FUNCTIONS)
        if depth is None:
            self.returning.add(function)
            is_users = function is not None and _objects.is_users_file(source.filename)
            calls = self.callers.get(function) or (self.calls_of(source, function.name) if is_users else ())
            for call in calls:
                self.follow(*call)
            return None
        frames = range(depth, len(self.places) if function is not None else 0)
        caller = next((at + 1 for at in frames if is_code_of(self.places[at][0], source, function)), None)
        if caller is None or is_generator(function):
            return self.give_up(UNKNOWN, source, node)
        return self.start(caller)

    def calls_of(self, source, name):
        """The calls of what has the name of a function that returns by an attribute."""
        for other in self.sources(source, name + "("):
            for load in [*other.names.get(name, ()), *other.attributes.get(name, ())]:
                call = other.parents.get(load)
                if isinstance(call, ast.Call) and call.func is load:
                    yield other, call, self.depth_of(other, call)

    # Variables -------------------------------------------------------------------------------------------------------

    def assign(self, source, target, depth):
        if isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self.assign(source, item, depth)
        elif isinstance(target, (ast.Starred, ast.Subscript, ast.Call)):
            self.assign(source, getattr(target, "value", None) or target.func, depth)
        elif isinstance(target, ast.Attribute):
            self.attribute(source, target.attr)
        elif isinstance(target, ast.Name):
            self.variable(source, target.id, source.enclosing(target, FUNCTIONS), depth)

    def attribute(self, source, name):
        for other in self.sources(source, "." + name):
            for load in other.attributes.get(name, ()):
                self.follow(other, load, self.depth_of(other, load))

    def variable(self, source, name, function, depth):
        is_shared = function is None or any(
            isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names for node in ast.walk(function)
        )
        for load in source.names.get(name, ()):
            if is_shared or function in source.around(load):
                inside = source.enclosing(load, FUNCTIONS) is function
                self.follow(source, load, depth if inside else self.depth_of(source, load))

    def depth_of(self, source, node):
        """The frame of the read that runs the function of `node`; None if there is none."""
        name = getattr(source.enclosing(node, FUNCTIONS), "name", "<module>")
        for depth, (code, _, _) in enumerate(self.places):
            if code.co_name == name and source_of(code.co_filename) is source:
                return depth
        return None

    # Branches --------------------------------------------------------------------------------------------------------

    def branch(self, source, statement, depth):
        if isinstance(statement, ast.While):
            return self.give_up(BRANCH, source, statement)
        is_direct = depth is not None and statement.lineno <= self.places[depth][2] <= statement.test.end_lineno
        truth = next(iter(self.truths)) if is_direct and len(self.truths) == 1 else None
        skipped = {False: statement.body, True: statement.orelse}.get(truth, [])
        if depth is None and any(isinstance(inner, ast.Return) for inner in ast.walk(statement)):
            self.follow_return(source, statement, depth)
        for inner in statement.body + statement.orelse:
            # Less would run if a GPU took this branch, which ends an iteration or a function early.
            ends_early = inner in skipped and isinstance(inner, (ast.Break, ast.Continue))
            if not ends_early and not self.is_harmless(source, inner, depth):
                return self.give_up(BRANCH, source, statement)
        return None

    def is_harmless(self, source, statement, depth):
        """Whether no request depends on whether `statement` runs. The variables that it assigns are followed."""
        if isinstance(statement, (ast.Pass, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.Global)):
            return True
        if isinstance(statement, ast.Expr):
            call = statement.value
            return isinstance(call, ast.Constant) or (isinstance(call, ast.Call) and not self.is_risky(source, call))
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if statement.value is not None and self.is_risky(source, statement.value):
                return False
            for target in getattr(statement, "targets", None) or [statement.target]:
                self.assign(source, target, depth)
            return True
        if isinstance(statement, ast.Return) and depth is None:  # of a function that a branch calls, or is in
            return statement.value is None or not self.is_risky(source, statement.value)
        if not isinstance(statement, (ast.If, ast.With, ast.For, ast.Try)):
            return False
        inside = [inner for inner in ast.iter_child_nodes(statement) if isinstance(inner, ast.stmt)]
        if isinstance(statement, ast.If) and self.has_run(source, statement):
            inside = [inner for inner in inside if self.has_run(source, inner)]  # else another condition decides
        if isinstance(statement, ast.For):
            own = [inner for inner in statement.body if isinstance(inner, (ast.Break, ast.Continue))]
            inside = [inner for inner in inside if inner not in own]
        for handler in getattr(statement, "handlers", ()):
            inside += [inner for inner in handler.body if self.has_run(source, inner)]
        value = getattr(statement, "test", None) or getattr(statement, "iter", None)
        are_harmless = all(self.is_harmless(source, inner, depth) for inner in inside)
        return are_harmless and (value is None or not self.is_risky(source, value))

    def is_harmless_function(self, source, function):
        """Whether no request depends on whether `function` is called. The variables that it assigns are followed."""
        if function in self.entered:
            return True
        self.entered.add(function)
        # Of a function that ran, what did not is decided by other values, which would be followed.
        body = [inner for inner in function.body if self.has_run(source, inner)] or function.body
        return not is_generator(function) and all(self.is_harmless(source, inner, None) for inner in body)

    def is_risky(self, source, node):
        """Whether `node` calls a function that may request memory, or keeps one for later."""
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Await, ast.Yield, ast.YieldFrom)):
                return True
            if isinstance(inner, ast.Call) and not self.is_harmless_call(source, inner):
                return True
        return False

    def is_harmless_call(self, source, call):
        """Whether no request depends on whether `call` is made, by what it called or may call."""
        name, functions = last_name(call.func), self.functions_of(source, call.func)
        if functions:  # whatever a known function of the same name does
            return all(self.is_harmless_function(*function) for function in functions)
        callees = self.observed.callees(source.filename, span(call)) if self.observed is not None else None
        if callees and all(self.is_harmless_callee(*callee) for callee in callees):
            return True
        return name in REPORTS | PASSES | KEEPS and name not in ("deepcopy", "clone", "to")

    def is_harmless_callee(self, kind, callee):
        if kind != "function":
            return not knows_torch(callee if kind == "module" else callee.__module__)
        if not uses_torch(callee.co_filename):
            return True
        target = source_of(callee.co_filename)
        functions = target.functions_of(callee)
        is_known = len(functions) == 1 and not is_torch(callee.co_filename)
        return is_known and self.is_harmless_function(target, functions[0])


def loaded_modules():
    return [one for one in list(sys.modules.values()) if type(one) is type(sys)]


@functools.lru_cache(maxsize=None)
def knows_torch(name):
    """Whether a module of the same package as module `name` has something of PyTorch. True if that is not known."""
    package = name.split(".")[0]
    return package in ("torch", "__main__") or any(
        (type(value) is type(sys) and value.__name__.split(".")[0] == "torch")
        or (type(getattr(value, "__module__", None)) is str and value.__module__.split(".")[0] == "torch")
        for one in loaded_modules()
        if one.__name__.split(".")[0] == package
        for value in list(vars(one).values())
    )


@functools.lru_cache(maxsize=None)
def uses_torch(filename):
    if filename.startswith("<frozen"):  # a module of Python's own
        return False
    names = (one.__name__ for one in loaded_modules() if vars(one).get("__file__") == filename)
    return knows_torch(next(names, "__main__"))


def users_files():
    paths = {vars(module).get("__file__") for module in loaded_modules()}
    return sorted(path for path in paths if type(path) is str and path.endswith(".py") and _objects.is_users_file(path))


def is_users_module(name, importing):
    """Whether module `name`, which the file `importing` imports, is the user's; so is one that is not found."""
    if name.startswith("."):
        return _objects.is_users_file(importing)
    module = sys.modules.get(name) or sys.modules.get(name.split(".")[0])
    path = vars(module).get("__file__") if type(module) is type(sys) else None
    if name in sys.builtin_module_names:
        return False
    return type(path) is not str or _objects.is_users_file(path)


def parameters_of(function, argument, call):
    """The names of the parameters of `function` that `argument` of `call` may become."""
    arguments = function.args
    names = [item.arg for item in arguments.posonlyargs + arguments.args]
    if names and names[0] in ("self", "cls"):
        names = names[1:]
    if isinstance(argument, ast.keyword):
        given = [item.arg for item in call.keywords]
        keywords = [item.arg for item in arguments.kwonlyargs]
        others = [name for name in [*names[len(call.args) :], *keywords] if name not in given]
        rest = [arguments.kwarg.arg] if arguments.kwarg else []
        is_named = argument.arg in [*names, *keywords]
        return [argument.arg] if is_named else rest if argument.arg else others + rest
    index = call.args.index(argument)
    rest = [arguments.vararg.arg] if arguments.vararg else []
    has_star = any(isinstance(item, ast.Starred) for item in call.args[: index + 1])
    return names + rest if has_star else names[index : index + 1] or rest
