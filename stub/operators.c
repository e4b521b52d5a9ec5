/* Runs Python before and after an operator of PyTorch (python/oomscope/_operators.py). A kernel in Python would be on
 * the stack of every request that its operator makes. This one is C, so the stacks are those of the program.
 *
 * Python and PyTorch are found in the process, by name: no header of theirs is needed. */
typedef struct python_object object;
typedef struct { /* PyMethodDef */
  const char *name;
  object *(*function)(object *, object *, object *);
  int flags;
  const char *doc;
} method;
#define WITH_KEYWORDS 3 /* METH_VARARGS | METH_KEYWORDS */
#define NO_FUNCTIONS 2  /* TorchFunctionDisabledState::ALL_DISABLED */

static struct {
  object *none;
  object *(*new_function)(method *, object *, object *);
  object *(*call)(object *, object *, object *);
  object *(*call_with)(object *, ...);
  object *(*item)(object *, ssize_t);
  ssize_t (*size)(object *);
  object *(*tuple)(ssize_t);
  int (*set_item)(object *, ssize_t, object *);
  object *(*and)(object *, object *);
  void (*acquire)(object *), (*release)(object *);
  void (*fetch)(object **, object **, object **), (*restore)(object *, object *, object *);
  void (*print_error)(object *);
} python;
/* Of PyTorch: functions and modes of the program that could take the place of an operator are off, and so is this
 * kernel; numbers are accepted for tensors, as the dispatcher has it. */
static struct torch {
  void (*allow_numbers)(void *, char), (*end_numbers)(void *);
  signed char (*functions)(void);
  void (*set_functions)(signed char);
  char (*is_excluded)(uint16_t);
  void (*exclude)(uint16_t, char);
} torch;
#define MAX_KEYS 4
static uint16_t own_keys[MAX_KEYS];

typedef struct {
  char numbers[16];
  signed char functions;
  char excluded[MAX_KEYS];
} own_state;
static void enter(own_state *state) {
  state->functions = torch.functions();
  torch.set_functions(NO_FUNCTIONS);
  for (int i = 0; i < MAX_KEYS && own_keys[i]; i++) {
    state->excluded[i] = torch.is_excluded(own_keys[i]);
    torch.exclude(own_keys[i], 1);
  }
}
static void leave(own_state *state) {
  for (int i = 0; i < MAX_KEYS && own_keys[i]; i++) torch.exclude(own_keys[i], state->excluded[i]);
  torch.set_functions(state->functions);
}

/* Number of operators in whose kernels the thread is. */
static __thread int depth = 0;
EXPORT int stub_operator_depth(void) { return depth; }

/* The operator's own kernel, in place of the key that led here. */
static object *run_below(object *plan, object *arguments, object *keywords) {
  ssize_t size = python.size(arguments);
  object *below = python.and(python.item(arguments, 0), python.item(plan, 1)), *all = below ? python.tuple(size) : NULL;
  if (!all) return NULL;
  python.set_item(all, 0, below);
  for (ssize_t i = 1; i < size; i++) {
    object *argument = python.item(arguments, i);
    python.acquire(argument);
    python.set_item(all, i, argument);
  }
  object *result = python.call(python.item(plan, 0), all, keywords);
  python.release(all);
  return result;
}
/* `plan` is (kernel, keys below this one, before, after), and has one more item if the operators that the kernel calls
 * must not come here. `before` gets the arguments, and returns what `after` gets
 * with the operator's result, or None. An error in them is printed, and the program goes on. */
static object *run_operator(object *plan, object *arguments, object *keywords) {
  own_state state;
  torch.allow_numbers(state.numbers, 1);
  enter(&state);
  object *token = python.call(python.item(plan, 2), arguments, keywords);
  if (!token) python.print_error(plan);
  leave(&state);
  int hides = python.size(plan) > 4;
  char excluded = hides && torch.is_excluded(own_keys[0]);
  if (hides) torch.exclude(own_keys[0], 1);
  depth++;
  object *result = run_below(plan, arguments, keywords);
  depth--;
  if (hides) torch.exclude(own_keys[0], excluded);
  if (token && token != python.none && result) {
    enter(&state);
    object *done = python.call_with(python.item(plan, 3), token, result, NULL);
    if (done) python.release(done);
    else python.print_error(plan);
    leave(&state);
  }
  object *error[3] = {NULL, NULL, NULL};
  if (!result) python.fetch(&error[0], &error[1], &error[2]);
  if (token) python.release(token);
  if (!result) python.restore(error[0], error[1], error[2]);
  torch.end_numbers(state.numbers);
  return result;
}
/* A function of Python that runs operators by `plan`. */
EXPORT object *stub_operator_kernel(object *plan) {
  static method definition = {"operator", run_operator, WITH_KEYWORDS, NULL};
  return python.new_function(&definition, plan, NULL);
}
/* `functions` are those of `struct torch`, and `keys` those that are off meanwhile, up to a zero. False if this Python
 * lacks something. */
EXPORT int stub_prepare_operators(void *const *functions, const uint16_t *keys) {
  const char *names[] = {"_Py_NoneStruct",  "PyCFunction_NewEx",
                         "PyObject_Call",   "PyObject_CallFunctionObjArgs",
                         "PyTuple_GetItem", "PyTuple_Size",
                         "PyTuple_New",     "PyTuple_SetItem",
                         "PyNumber_And",    "Py_IncRef",
                         "Py_DecRef",       "PyErr_Fetch",
                         "PyErr_Restore",   "PyErr_WriteUnraisable"};
  void **members = (void **)&python;
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
    if (!(members[i] = dlsym(RTLD_DEFAULT, names[i]))) return 0;
  memcpy(&torch, functions, sizeof torch);
  for (int i = 0; i < MAX_KEYS && keys[i]; i++) own_keys[i] = keys[i];
  return 1;
}

/* ---- writes to device memory that no operator made: a log of addresses; 0: anywhere ---- */
#define LOGGED_WRITES 256
static uint64_t outside_writes[LOGGED_WRITES];
EXPORT uint64_t stub_outside_writes = 0; /* their number */
EXPORT uint64_t stub_outside_write(uint64_t index) { return outside_writes[index % LOGGED_WRITES]; }
static void write_outside(const void *address) {
  pthread_mutex_lock(&lock);
  outside_writes[stub_outside_writes % LOGGED_WRITES] = (uint64_t)address;
  stub_outside_writes++;
  pthread_mutex_unlock(&lock);
}
/* Work that no operator of PyTorch's started (python/oomscope/_operators.py) writes anywhere: that of extensions, and
 * of operators on sparse and nested tensors, whose kernels precede the key. */
static uint64_t captured_nodes = 0; /* of the CUDA graph that is captured, if one is */
static void write_by_work(void) {
  captured_nodes++;
  if (!depth) write_outside(NULL);
}
