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

impl Decoder {
    /// `None` if it is not a dict that oomscope wrote.
    pub(super) fn read_tensor_names(&self, value: Value) -> Option<TensorNames> {
        let items = |key| self.items_of(value, key);
        let texts: Vec<Option<SymbolId>> = items("texts").into_iter().map(|it| self.name_text(it)).collect();
        let kinds: Vec<_> = items("kinds")
            .into_iter()
            .take(MAX_ITEMS)
            .map(|it| self.word(it, |word| TensorKind::from_word(&word.replace(' ', "-"))))
            .collect();
        let roots: Vec<_> = items("roots").into_iter().take(MAX_ROWS).map(|it| self.read_name_root(it)).collect();
        let shapes: Vec<_> = items("shapes").into_iter().take(MAX_ROWS).map(|it| self.read_shape(it)).collect();
        // Index 0 is no text: a list of nothing but strings would be read as a stack.
        let text = |index: u64| texts.get(usize::try_from(index).ok()?).copied().flatten();
        let tensor = |row: Value| {
            let row: Vec<u64> =
                self.items(row).into_iter().take(10).map(|it| self.integer(it).unwrap_or(u64::MAX)).collect();
            let [address, bytes, kind, name, root, operator, is_in_graph, dtype, shape, ref places @ ..] =
                *row.as_slice()
            else {
                return None;
            };
            let root = usize::try_from(root).ok().filter(|root| roots.get(*root).is_some_and(Option::is_some))?;
            Some(NamedTensor {
                address,
                bytes,
                kind: (*kinds.get(usize::try_from(kind).ok()?)?)?,
                name: text(name),
                root,
                operator: text(operator),
                is_in_graph: is_in_graph != 0,
                dtype: text(dtype)?,
                shape: usize::try_from(shape).ok().filter(|shape| *shape < shapes.len()),
                places: places.first().copied().unwrap_or(1),
            })
        };
        let container = |row: Value| {
            let [name, type_name, items] = *self.numbers(row, 3) else { return None };
            Some(NamedContainer { name: text(name)?, type_name: text(type_name)?, items })
        };
        let forward = |it: Value| Some((self.stack(it, "frames")?, self.number(it, "last_line")?));
        let forwards: Vec<Option<(StackId, u64)>> = items("forwards").into_iter().take(MAX_ROWS).map(forward).collect();
        let module = |row: Value| {
            let [name, _, forward] = *self.numbers(row, 3) else { return None };
            let (forward, last_line) = (*forwards.get(usize::try_from(forward).ok()?)?)?;
            Some(NamedModule { name: text(name)?, forward, last_line })
        };
        let tensors = self.find(value, "tensors").map(|it| self.items(it))?;
        let locals = self.find(value, "locals");
        let local_rows = locals.map(|locals| self.items_of(locals, "tensors")).unwrap_or_default();
        let names_in = |key| -> Vec<SymbolId> {
            items(key).into_iter().take(MAX_ITEMS).filter_map(|it| text(self.integer(it)?)).collect()
        };
        let alone = |row: Value| {
            let variable = |it: &Value| {
                let [call, name] = *self.items(*it).as_slice() else { return None };
                Some((usize::try_from(self.integer(call)?).ok()?, text(self.integer(name)?)?))
            };
            self.items(row).iter().take(MAX_ITEMS).map(variable).collect()
        };
        let names = TensorNames {
            tensors: tensors.into_iter().take(MAX_ROWS).filter_map(tensor).collect(),
            containers: items("containers").into_iter().take(MAX_ROWS).filter_map(container).collect(),
            modules: items("modules").into_iter().take(MAX_ROWS).filter_map(module).collect(),
            is_complete: self.is_true(value, "complete"),
            locals_frame: locals.and_then(|locals| self.stack(locals, "frames")),
            locals: local_rows.into_iter().take(MAX_ITEMS).filter_map(|it| self.read_local(it)).collect(),
            untrained: names_in("untrained"),
            idle: names_in("idle"),
            adapted: names_in("adapted"),
            evaluating: names_in("evaluating"),
            alone: items("alone").into_iter().take(MAX_ITEMS).filter_map(alone).collect(),
            calls: self.find(value, "calls").map(|it| self.read_stacks(it)).unwrap_or_default(),
            optimizers: self.number(value, "optimizers"),
            shapes,
            // An unreadable root keeps its row, so that indexes stay right; no tensor refers to it.
            roots: roots.into_iter().map(Option::unwrap_or_default).collect(),
        };
        Some(names)
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
