//! docs/json.md describes every key of the JSON: its lists are written from the doc comments of the serialized types.
//!
//! `UPDATE_DOCS=1` writes them. Between `<!-- keys: oomscope/analyze/1 -->` and `<!-- end -->` is the type with that
//! `schema`, followed by the types it contains that no earlier part of the page describes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use crate::json_types::{Key, Kind, Shape, Shapes, named, shapes};

/// Where the page has the codes of warnings.
const CODES: &str = "#codes-of-warnings";
/// Types whose words have a table elsewhere, which words.rs asserts.
const TABLES: [(&str, &str); 5] = [
    ("Category", "where.md"),
    ("Code", CODES),
    ("Phase", "where.md"),
    ("ProgramChange", "program.md"),
    ("Verdict", "failures.md"),
];

fn table_of(name: &str) -> Option<&'static str> {
    TABLES.iter().find(|(ty, _)| *ty == name).map(|(_, place)| *place)
}

/// Writes the page's parts.
struct Writer<'a> {
    shapes: &'a Shapes,
    /// How many types take over the keys of a type.
    flattened: BTreeMap<&'a str, usize>,
    described: BTreeSet<String>,
    /// The type that first has a key, by the key's name and comment.
    first: BTreeMap<(String, String), String>,
}

impl<'a> Writer<'a> {
    fn new(shapes: &'a Shapes) -> Self {
        let mut flattened = BTreeMap::new();
        for key in shapes.values().flat_map(|shape| &shape.keys).filter(|key| key.is_flattened) {
            for name in named(&key.kind) {
                *flattened.entry(name).or_default() += 1;
            }
        }
        Self { shapes, flattened, described: BTreeSet::new(), first: BTreeMap::new() }
    }

    /// `kind` in words; nothing for strings and numbers, of which the key says enough.
    fn label(&self, kind: &Kind, shape: &Shape) -> String {
        let list = |kind: &Kind| match self.label(kind, shape).as_str() {
            "" => match kind {
                Kind::Plain(word) => (*word).to_owned(),
                _ => "value".to_owned(),
            },
            label => label.to_owned(),
        };
        match kind {
            Kind::Plain("boolean") => "boolean".to_owned(),
            Kind::Plain(_) => String::new(),
            Kind::Named(name) if shape.parameters.contains(name) => String::new(),
            Kind::Named(name) => {
                assert!(self.shapes.contains_key(name), "{name} is not a serialized type");
                match table_of(name) {
                    Some(place) if place.starts_with('#') => format!("[{name}]({place})"),
                    _ => format!("[{name}](#{})", name.to_lowercase()),
                }
            }
            Kind::Of(name, inner) => {
                let link = format!("[{name}](#{})", name.to_lowercase());
                let inner = self.label(inner, shape);
                if inner.is_empty() { link } else { format!("{link} of {inner}") }
            }
            Kind::Tuple(kinds) => {
                let kinds: Vec<String> = kinds.iter().map(list).collect();
                format!("[{}]", kinds.join(","))
            }
            Kind::List(inner) => format!("{}[]", list(inner)),
            Kind::Map(_) => "object".to_owned(),
            Kind::Nullable(inner) => match self.label(inner, shape) {
                label if label.is_empty() => label,
                label => label,
            },
        }
    }

    /// The keys of `shape`. Those of a flattened type are in its place if no other type has them.
    fn flat(&self, shape: &Shape) -> Vec<Key> {
        let keys = shape.keys.iter().flat_map(|key| {
            let inner = match &key.kind {
                Kind::Named(name) if key.is_flattened && self.flattened[name.as_str()] == 1 => self.shapes.get(name),
                _ => None,
            };
            inner.filter(|inner| inner.variants.is_empty()).map_or_else(|| vec![key.clone()], |inner| self.flat(inner))
        });
        keys.collect()
    }

    /// The part of the page on `root` and what it contains, without what is described already.
    fn part(&mut self, root: &str) -> String {
        let mut text = String::new();
        let mut open = VecDeque::from([root.to_owned()]);
        while let Some(name) = open.pop_front() {
            let Some(shape) = self.shapes.get(&name) else { continue };
            if !self.described.insert(name.clone()) {
                continue;
            }
            write!(text, "### {name}\n\n").unwrap();
            if name != root || !shape.doc.starts_with("The JSON of ") {
                write!(text, "{}\n\n", shape.doc).unwrap();
            }
            text += &self.keys(&name, shape);
            for key in &self.flat(shape) {
                let types = named(&key.kind).into_iter();
                open.extend(types.filter(|name| table_of(name) != Some(CODES)).map(str::to_owned));
            }
            open.extend(shape.parts.iter().flat_map(named).map(str::to_owned));
            if !shape.variants.is_empty() {
                let types: Vec<_> = shape.variants.iter().map(|kind| self.label(kind, shape)).collect();
                write!(text, "Has the keys of {}.\n\n", types.join(" or ")).unwrap();
                open.extend(shape.variants.iter().flat_map(named).map(str::to_owned));
            }
            if let Some(place) = table_of(&name) {
                let words: Vec<_> = shape.words.iter().map(|word| format!("`{}`", word.0)).collect();
                write!(text, "One of {}: [{place}]({place}).\n\n", words.join(", ")).unwrap();
                continue;
            }
            for (word, meaning) in &shape.words {
                let colon = if meaning.is_empty() { "" } else { ": " };
                writeln!(text, "- `{word}`{colon}{meaning}").unwrap();
            }
            if !shape.words.is_empty() {
                text += "\n";
            }
        }
        text
    }

    /// The rows of the keys of type `name`. A key that another type has with the same meaning refers to it.
    fn keys(&mut self, name: &str, shape: &Shape) -> String {
        let (mut rows, mut known) = (String::new(), BTreeMap::<String, Vec<String>>::new());
        let mut all_of = Vec::new();
        for mut key in self.flat(shape) {
            let label = self.label(&key.kind, shape);
            if key.is_flattened {
                all_of.push(label);
                continue;
            }
            // The text before the list names the schema.
            if key.name == "schema" {
                continue;
            }
            key.doc = without_conventions(&key);
            let mark = if key.is_optional { "?" } else { "" };
            let id = (key.name.clone(), key.doc.clone());
            let link = key.doc.strip_prefix("See `").and_then(|doc| doc.split_once("::"));
            let first = match link {
                Some((ty, _)) => ty.to_owned(),
                None => self.first.entry(id).or_insert_with(|| name.to_owned()).clone(),
            };
            if first != name {
                known.entry(first).or_default().push(format!("`{}{mark}`", key.name));
            } else {
                writeln!(rows, "|`{}{mark}`|{label}|{}|", key.name, key.doc).unwrap();
            }
        }
        if !rows.is_empty() {
            rows = format!("|key|type|meaning|\n|---|---|---|\n{rows}\n");
        }
        for label in all_of {
            write!(rows, "Also the keys of {label}.\n\n").unwrap();
        }
        let known = known.into_iter().map(|(ty, keys)| format!("[{ty}](#{}): {}", ty.to_lowercase(), keys.join(", ")));
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            write!(rows, "As in {}.\n\n", known.join("; ")).unwrap();
        }
        rows
    }
}

/// The comment of `key` without what the head of the page says of all keys.
fn without_conventions(key: &Key) -> String {
    let ends_in = |endings: &[&str]| endings.iter().any(|ending| key.name.ends_with(ending));
    let mut phrases = Vec::new();
    if ends_in(&["bytes"]) {
        phrases.extend([", in bytes", " in bytes"]);
    }
    if ends_in(&["_us"]) {
        phrases.extend([", in microseconds since the epoch", " in microseconds since the epoch"]);
        phrases.extend([
            ", in microseconds",
            " in microseconds",
            "; null before PyTorch 2.2",
            "; null if not recorded",
        ]);
    }
    if ends_in(&["event"]) {
        phrases.push(" in the device's trace");
    }
    if ends_in(&["settings", "settings_string"]) {
        phrases.push(", in the syntax of `PYTORCH_CUDA_ALLOC_CONF`");
    }
    if key.is_optional {
        phrases.extend(["; absent if there are none", "; absent if there is none", "; absent if there was none"]);
        phrases.extend([
            "; absent if none was",
            "; absent if empty",
            "; absent if false",
            "; absent if none was recorded",
        ]);
    }
    if ends_in(&["second"]) || key.name.starts_with("second") {
        phrases.push("; absent for sizes of one number");
    }
    phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.len()));
    phrases.into_iter().fold(key.doc.clone(), |doc, phrase| doc.replace(phrase, ""))
}

#[test]
fn every_key_of_the_json_is_described_by_its_type() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (shapes, mut roots) = shapes();
    let mut writer = Writer::new(&shapes);
    let mut written = String::new();
    let mut rest = page.as_str();
    while let Some((before, after)) = rest.split_once("<!-- keys: ") {
        let (schema, after) = after.split_once(" -->").unwrap();
        let (_, after) = after.split_once("<!-- end -->").expect("<!-- end --> after <!-- keys: .. -->");
        let root = roots.remove(schema).unwrap_or_else(|| panic!("no type has schema {schema}"));
        let part = writer.part(&root);
        write!(written, "{before}<!-- keys: {schema} -->\n\n{part}<!-- end -->").unwrap();
        rest = after;
    }
    written += rest;
    assert!(roots.is_empty(), "docs/json.md has no part for {roots:?}");
    let updates = std::env::var_os("UPDATE_DOCS").is_some();
    if updates {
        std::fs::write(&path, &written).unwrap();
    }
    // A reader of the JSON knows null and absent keys, and no None.
    let is_described = |key: &Key| !key.doc.is_empty() && !key.doc.contains("`None`");
    let undescribed: Vec<String> = writer
        .described
        .iter()
        .flat_map(|name| {
            let keys = shapes[name].keys.iter();
            let faulty = keys.filter(|key| !key.is_flattened && !is_described(key));
            faulty.map(move |key| format!("{name}.{}", key.name))
        })
        .collect();
    assert!(undescribed.is_empty(), "no doc comment, or one that says `None`: {undescribed:?}");
    assert!(written == page || updates, "docs/json.md is out of date: run with UPDATE_DOCS=1");
}
