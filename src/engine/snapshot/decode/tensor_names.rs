//! Reading `oomscope.names`. As untrusted as the rest of the file: a row with an index or a word that does not exist is
//! left out.

use super::super::tensor_names::{
    Author, LocalTensor, NameRoot, NamedContainer, NamedModule, NamedTensor, RootKind, TensorKind, TensorNames,
};
use super::Decoder;
use super::recorder_info::{MAX_ITEMS, MAX_TEXT};
use crate::base::ids::{StackId, SymbolId};
use crate::snapshot::pickle::{Kind, Value};

/// The recorder writes no more rows than this.
const MAX_ROWS: usize = 1 << 17;
/// Larger shapes are not read.
const MAX_DIMENSIONS: usize = 64;

/// The lists that rows refer to by index.
struct NameTables<'d> {
    decoder: &'d Decoder,
    texts: Vec<Option<SymbolId>>,
    kinds: Vec<Option<TensorKind>>,
    roots: Vec<Option<NameRoot>>,
    shapes: Vec<Vec<u64>>,
    /// The stack and the last line of each `forward` of a module.
    forwards: Vec<Option<(StackId, u64)>>,
}

impl NameTables<'_> {
    /// Index 0 is no text: a list of nothing but strings would be read as a stack.
    fn text(&self, index: u64) -> Option<SymbolId> {
        self.texts.get(usize::try_from(index).ok()?).copied().flatten()
    }

    fn read_tensor(&self, row: Value) -> Option<NamedTensor> {
        let row = self.decoder.items(row).into_iter().take(10);
        let row: Vec<u64> = row.map(|it| self.decoder.integer(it).unwrap_or(u64::MAX)).collect();
        let [address, bytes, kind, name, root, operator, is_in_graph, dtype, shape, ref places @ ..] = *row.as_slice()
        else {
            return None;
        };
        let root = usize::try_from(root).ok().filter(|root| self.roots.get(*root).is_some_and(Option::is_some))?;
        Some(NamedTensor {
            address,
            bytes,
            kind: (*self.kinds.get(usize::try_from(kind).ok()?)?)?,
            name: self.text(name),
            root,
            operator: self.text(operator),
            is_in_graph: is_in_graph != 0,
            dtype: self.text(dtype)?,
            shape: usize::try_from(shape).ok().filter(|shape| *shape < self.shapes.len()),
            places: places.first().copied().unwrap_or(1),
        })
    }

    fn read_container(&self, row: Value) -> Option<NamedContainer> {
        let [name, type_name, items] = *self.decoder.numbers(row, 3) else { return None };
        Some(NamedContainer { name: self.text(name)?, type_name: self.text(type_name)?, items })
    }

    fn read_module(&self, row: Value) -> Option<NamedModule> {
        let [name, _, forward] = *self.decoder.numbers(row, 3) else { return None };
        let (forward, last_line) = (*self.forwards.get(usize::try_from(forward).ok()?)?)?;
        Some(NamedModule { name: self.text(name)?, forward, last_line })
    }

    /// The variables of a value, as in [`TensorNames::alone`].
    fn read_variables(&self, row: Value) -> Option<Vec<(usize, SymbolId)>> {
        let variables = self.decoder.items(row).into_iter().take(MAX_ITEMS).map(|variable| {
            let [call, name] = *self.decoder.items(variable).as_slice() else { return None };
            let call = usize::try_from(self.decoder.integer(call)?).ok()?;
            Some((call, self.text(self.decoder.integer(name)?)?))
        });
        variables.collect()
    }
}

impl Decoder {
    /// `None` if it is not a dict that oomscope wrote.
    pub(super) fn read_tensor_names(&self, value: Value) -> Option<TensorNames> {
        let [texts, kinds, alone] = ["texts", "kinds", "alone"].map(|key| self.items_of(value, key).into_iter());
        let [roots, shapes, forwards, containers, modules] = ["roots", "shapes", "forwards", "containers", "modules"]
            .map(|key| self.items_of(value, key).into_iter().take(MAX_ROWS));
        let kinds = kinds.take(MAX_ITEMS);
        let forwards = forwards.map(|it| Some((self.stack(it, "frames")?, self.number(it, "last_line")?)));
        let tables = NameTables {
            decoder: self,
            texts: texts.map(|it| self.name_text(it)).collect(),
            kinds: kinds.map(|it| self.word(it, |word| TensorKind::from_word(&word.replace(' ', "-")))).collect(),
            roots: roots.map(|it| self.read_name_root(it)).collect(),
            shapes: shapes.map(|it| self.read_shape(it)).collect(),
            forwards: forwards.collect(),
        };
        let tensors = self.find(value, "tensors").map(|it| self.items(it))?;
        let locals = self.find(value, "locals");
        let local_rows = locals.map(|locals| self.items_of(locals, "tensors")).unwrap_or_default();
        let [untrained, idle, adapted, evaluating] = ["untrained", "idle", "adapted", "evaluating"].map(|key| {
            let numbers = self.items_of(value, key).into_iter().take(MAX_ITEMS);
            numbers.filter_map(|it| tables.text(self.integer(it)?)).collect()
        });
        Some(TensorNames {
            tensors: tensors.into_iter().take(MAX_ROWS).filter_map(|row| tables.read_tensor(row)).collect(),
            containers: containers.filter_map(|row| tables.read_container(row)).collect(),
            modules: modules.filter_map(|row| tables.read_module(row)).collect(),
            is_complete: self.is_true(value, "complete"),
            locals_frame: locals.and_then(|locals| self.stack(locals, "frames")),
            locals: local_rows.into_iter().take(MAX_ITEMS).filter_map(|it| self.read_local(it)).collect(),
            untrained,
            idle,
            adapted,
            evaluating,
            alone: alone.take(MAX_ITEMS).filter_map(|row| tables.read_variables(row)).collect(),
            calls: self.find(value, "calls").map(|it| self.read_stacks(it)).unwrap_or_default(),
            optimizers: self.number(value, "optimizers"),
            shapes: tables.shapes,
            // An unreadable root keeps its row, so that indexes stay right; no tensor refers to it.
            roots: tables.roots.into_iter().map(Option::unwrap_or_default).collect(),
        })
    }

    fn name_text(&self, value: Value) -> Option<SymbolId> {
        match value.kind() {
            Kind::Text(id) if self.snapshot.symbols.get(id).len() <= MAX_TEXT => Some(id),
            _ => None,
        }
    }

    fn word<T>(&self, value: Value, from_word: impl Fn(&str) -> Option<T>) -> Option<T> {
        from_word(self.as_text(value)?)
    }

    fn read_shape(&self, value: Value) -> Vec<u64> {
        self.numbers(value, MAX_DIMENSIONS)
    }

    fn read_name_root(&self, value: Value) -> Option<NameRoot> {
        Some(NameRoot {
            kind: self.word(self.find(value, "kind")?, RootKind::from_word)?,
            author: self.word(self.find(value, "author")?, Author::from_word)?,
            frame: self.stack(value, "frames"),
            module: self.find(value, "module").and_then(|it| self.name_text(it)),
            file: self.find(value, "file").and_then(|it| self.name_text(it)),
        })
    }

    fn read_local(&self, row: Value) -> Option<LocalTensor> {
        let row = self.items(row);
        let [name, dtype, shape] = *row.as_slice() else { return None };
        Some(LocalTensor { name: self.name_text(name)?, dtype: self.name_text(dtype)?, shape: self.read_shape(shape) })
    }
}
