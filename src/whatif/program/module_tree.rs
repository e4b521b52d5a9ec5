//! The modules that the recorder saw, by the code of their `forward`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::base::ids::{SymbolId, to_u32};
use crate::base::intern::SeededMap;
use crate::snapshot::Snapshot;
use crate::study::variables::{ITEM, fold_indexes};

/// The items of the containers of modules, such as `model.blocks[*]`.
#[derive(Debug, Default)]
pub(super) struct ModuleTree {
    /// The methods `forward` of each file, in order of their lines.
    methods: FxHashMap<SymbolId, Vec<Method>>,
    containers: Vec<ModuleItems>,
}

/// The items of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleItems {
    /// Such as `model.blocks[*]`.
    pub(super) name: String,
    pub(super) count: usize,
}

/// The `forward` of one class, all of whose items are in one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Method {
    first_line: u64,
    last_line: u64,
    item: ItemClass,
}

/// A class of items, and their container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemClass {
    pub(super) container: u32,
    /// A number for the class.
    pub(super) class: u32,
}

impl ModuleTree {
    pub(super) fn from_snapshot(snapshot: &Snapshot) -> Self {
        let modules = snapshot.tensor_names.iter().flat_map(|names| &names.modules);
        let mut containers: Vec<ModuleItems> = Vec::new();
        let mut container_ids: SeededMap<String, u32> = SeededMap::default();
        let mut classes: FxHashMap<(SymbolId, u64, u64), BTreeSet<u32>> = FxHashMap::default();
        for module in modules {
            let name = fold_indexes(snapshot.text(module.name));
            let Some(frame) = snapshot.stacks.frames(module.forward).first() else { continue };
            let frame = snapshot.stacks.frame(frame);
            if !name.ends_with(ITEM) {
                continue;
            }
            let id = *container_ids.entry(name).or_insert_with_key(|name| {
                containers.push(ModuleItems { name: name.clone(), count: 0 });
                to_u32(containers.len() - 1)
            });
            containers[id as usize].count += 1;
            classes.entry((frame.file, u64::from(frame.line), module.last_line)).or_default().insert(id);
        }
        let mut classes: Vec<_> = classes.into_iter().collect();
        classes.sort_unstable_by_key(|(place, _)| *place);
        let mut methods: FxHashMap<SymbolId, Vec<Method>> = FxHashMap::default();
        for (class, ((file, first_line, last_line), of_class)) in classes.into_iter().enumerate() {
            // Calls of a class with items in several containers could be of any of these.
            if let (Some(container), 1) = (of_class.first(), of_class.len()) {
                let item = ItemClass { container: *container, class: to_u32(class) };
                methods.entry(file).or_default().push(Method { first_line, last_line, item });
            }
        }
        Self { methods, containers }
    }

    /// The class whose `forward` has this line.
    pub(super) fn class_at(&self, file: SymbolId, line: u64) -> Option<ItemClass> {
        let methods = self.methods.get(&file)?;
        let after = methods.partition_point(|method| method.first_line <= line);
        methods[..after].last().filter(|method| line <= method.last_line).map(|method| method.item)
    }

    pub(super) fn items(&self, container: u32) -> &ModuleItems {
        &self.containers[container as usize]
    }
}
