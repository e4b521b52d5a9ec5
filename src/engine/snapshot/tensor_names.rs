//! The variables that keep GPU memory alive, as the recorder found them inside the process.

use crate::base::ids::{StackId, SymbolId};
use crate::base::warning::words;

/// The contents of `oomscope.names`. `docs/snapshot-format.md` describes the layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TensorNames {
    /// Storages with a name, the largest first.
    pub tensors: Vec<NamedTensor>,
    /// Where names start.
    pub roots: Vec<NameRoot>,
    /// Containers on the way to a tensor.
    pub containers: Vec<NamedContainer>,
    /// Distinct shapes.
    pub shapes: Vec<Vec<u64>>,
    /// The recorder had time to look everywhere.
    pub is_complete: bool,
    /// The modules of torch.nn whose class has a `forward` in Python.
    pub modules: Vec<NamedModule>,
    /// The innermost function of the user when the snapshot was taken, as a stack of one frame.
    pub locals_frame: Option<StackId>,
    /// The tensors among its local variables.
    pub locals: Vec<LocalTensor>,
    /// Number of optimizers; `None` from a recorder that did not count them.
    pub optimizers: Option<u64>,
    /// The largest modules whose parameters require gradients although no optimizer has any of them.
    pub untrained: Vec<SymbolId>,
    /// Modules whose parameters all have the learning rate 0.
    pub idle: Vec<SymbolId>,
    /// Modules with adapters whose other parameters are trained, too.
    pub adapted: Vec<SymbolId>,
    /// The outermost modules that do not train.
    pub evaluating: Vec<SymbolId>,
    /// Values whose memory no other object has, each as its variables: a row of [`Self::calls`], and the name there.
    pub alone: Vec<Vec<(usize, SymbolId)>>,
    /// The lines of the running functions of the user, the innermost first, each as a stack of one frame.
    pub calls: Vec<StackId>,
}

/// A storage with its best name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedTensor {
    /// First address.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Its use.
    pub kind: TensorKind,
    /// Such as `trainer.history[3]`; `None` if no variable leads to it.
    pub name: Option<SymbolId>,
    /// Where the name starts, a row of [`TensorNames::roots`].
    pub root: usize,
    /// The autograd node and argument that saved it, such as `MulBackward0.other`.
    pub operator: Option<SymbolId>,
    /// The variable keeps it only through an autograd graph.
    pub is_in_graph: bool,
    /// Such as `float32`.
    pub dtype: SymbolId,
    /// A row of [`TensorNames::shapes`].
    pub shape: Option<usize>,
    /// Number of tensors that begin at different places in it.
    pub places: u64,
}

impl NamedTensor {
    /// Bytes of the storage that no known tensor uses: all that are known begin at one place, and the largest of them, whose
    /// row of `shapes` this one names, is a view of less. 0 if that is not known.
    pub fn unused_bytes(&self, dtype: &str, shapes: &[Vec<u64>]) -> u64 {
        let shape = self.shape.filter(|_| self.places == 1).and_then(|shape| shapes.get(shape));
        let used = shape.and_then(|shape| tensor_bytes(shape, dtype));
        used.map_or(0, |used| self.bytes.saturating_sub(used))
    }
}

/// Bytes of the elements of a tensor; `None` if they are too many, or the type is of a later release.
pub fn tensor_bytes(shape: &[u64], dtype: &str) -> Option<u64> {
    shape.iter().try_fold(element_bytes(dtype)?, |product: u64, size| product.checked_mul(*size))
}

/// Bytes of an element; `None` for types that PyTorch may add.
fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "bool" | "uint8" | "int8" | "float8_e4m3fn" | "float8_e5m2" => 1,
        "float16" | "bfloat16" | "int16" => 2,
        "float32" | "int32" => 4,
        "float64" | "int64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    })
}

words! {
    /// The use of a storage.
    pub enum TensorKind {
        /// A parameter of a module, or of an optimizer if no module has any
        Parameter = "parameter",
        /// A buffer of a module
        Buffer = "buffer",
        /// The `.grad` of a tensor
        Gradient = "gradient",
        /// State of an optimizer for one parameter
        OptimizerState = "optimizer-state",
        /// Saved for a backward pass
        Saved = "saved",
        /// Another tensor
        Variable = "variable",
    }
}

/// Where a name starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameRoot {
    /// Its kind.
    pub kind: RootKind,
    /// The author of the code there.
    pub author: Author,
    /// For a local variable, the function as a stack of one frame.
    pub frame: Option<StackId>,
    /// For a variable of a module, the module.
    pub module: Option<SymbolId>,
    /// The module's file.
    pub file: Option<SymbolId>,
}

words! {
    /// The kind of a [`NameRoot`].
    #[derive(Default)]
    pub enum RootKind {
        /// A local variable of a running function
        Frame = "frame",
        /// A variable of a module
        Module = "module",
        /// An exception that is being handled, or the last one
        Exception = "exception",
        /// No variable: the value of a call that is running
        Call = "call",
        /// No variable: only a reference cycle
        Cycle = "cycle",
        /// The recorder had no time to reach its variable
        #[default]
        Unreached = "unreached",
    }
}

words! {
    /// The author of the code at a [`NameRoot`].
    #[derive(Default)]
    pub enum Author {
        /// The user
        #[default]
        User = "user",
        /// An installed package
        Library = "library",
        /// PyTorch itself
        Pytorch = "pytorch",
    }
}

/// A container on the way to a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedContainer {
    /// Its name, such as `trainer.history`.
    pub name: SymbolId,
    /// The name of its type, such as `list`.
    pub type_name: SymbolId,
    /// Number of items.
    pub items: u64,
}

words! {
    /// How a statement writes to a variable.
    pub enum WriteKind {
        /// An item is put into a container
        Put = "put",
        /// Several items are
        Extend = "extend",
        /// A value is stored under a key
        Store = "store",
        /// `x += y`
        Accumulate = "accumulate",
        /// `x = cat([x, y])`
        Join = "join",
        /// `x = f(x)`
        Recur = "recur",
        /// `x = y`
        Assign = "assign",
    }
}

words! {
    /// Where the function of a statement calls `backward()`.
    pub enum BackwardCall {
        /// It is called on the variable itself
        Itself = "itself",
        /// In the innermost loop of the statement
        Loop = "loop",
        /// With a detached state, less often than the statement runs
        Window = "window",
        /// Elsewhere in the function
        Function = "function",
        /// In another function, which reads a variable with that name
        Elsewhere = "elsewhere",
    }
}

/// A tensor of a running function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTensor {
    /// Name of the variable, or of its attribute or item.
    pub name: SymbolId,
    /// Such as `float32`.
    pub dtype: SymbolId,
    /// Its shape.
    pub shape: Vec<u64>,
}

/// A module of torch.nn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedModule {
    /// Its name, such as `model.blocks[3]`.
    pub name: SymbolId,
    /// The first line of the class's `forward`, as a stack of one frame.
    pub forward: StackId,
    /// The last line of that method.
    pub last_line: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_leaves_the_rest_of_its_storage_unused() {
        let shapes = [vec![8, 16_000], vec![8, 160, 16_000], vec![u64::MAX, 2]];
        for (shape, places, dtype, unused) in [
            (Some(0), 1, "float32", 81_920_000 - 512_000),
            (Some(1), 1, "float32", 0),
            // Parts at several places, a shape that is not known, a type that is not, too many elements.
            (Some(0), 2, "float32", 0),
            (None, 1, "float32", 0),
            (Some(3), 1, "float32", 0),
            (Some(0), 1, "float7", 0),
            (Some(2), 1, "bool", 0),
        ] {
            let tensor = NamedTensor {
                address: 1 << 40,
                bytes: 81_920_000,
                kind: TensorKind::Variable,
                name: None,
                root: 0,
                operator: None,
                is_in_graph: false,
                dtype: SymbolId::default(),
                shape,
                places,
            };
            assert_eq!(tensor.unused_bytes(dtype, &shapes), unused, "{shape:?} {places} {dtype}");
        }
    }
}
