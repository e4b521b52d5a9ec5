//! docs/json.md describes every key of the JSON: its lists are written from the doc comments of the serialized types.
//!
//! `UPDATE_DOCS=1` writes them. Between `<!-- keys: oomscope/analyze/1 -->` and `<!-- end -->` is the type with that
//! `schema`, followed by the types it contains that no earlier part of the page describes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use crate::support::rust_source::sources;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, Field, Fields, GenericArgument, GenericParam, Generics, Item, Lit, LitStr, Meta, PathArguments,
    Token, Type,
};

/// A serialized type, as docs/json.md shows it.
#[derive(Debug, Clone, Default)]
struct Shape {
    doc: String,
    keys: Vec<Key>,
    words: Vec<(String, String)>,
    /// The types that an untagged enum may have.
    variants: Vec<Kind>,
    /// The types of a type that is serialized by hand.
    parts: Vec<Kind>,
    parameters: Vec<String>,
}

#[derive(Debug, Clone)]
struct Key {
    name: String,
    doc: String,
    kind: Kind,
    is_optional: bool,
    is_flattened: bool,
}

/// What a value is in JSON: words around the named types.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Plain(&'static str),
    Named(String),
    /// A type with a parameter.
    Of(String, Box<Kind>),
    Tuple(Vec<Kind>),
    List(Box<Kind>),
    Map(Box<Kind>),
    Nullable(Box<Kind>),
}

type Shapes = BTreeMap<String, Shape>;

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

/// The types in src, by name.
#[derive(Debug, Default)]
struct Declared {
    shapes: Vec<(String, Shape)>,
    /// Reports with their schemas.
    schemas: Vec<(String, String)>,
    aliases: BTreeMap<String, Kind>,
}

/// The text of doc comments as one line, with links to items reduced to their names.
fn doc_of(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let paragraph = text.split("  ").next().unwrap_or_default().trim();
    // What links to an item becomes its name.
    let paragraph = paragraph.replace('|', "\\|");
    let mut parts = paragraph.split("[`");
    let mut doc = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once("`]").unwrap_or((part, ""));
        let name = if path.starts_with("crate::") { path.rsplit("::").next() } else { Some(path) };
        write!(doc, "`{}`{rest}", name.unwrap()).unwrap();
    }
    doc
}

/// Every argument of `#[serde(..)]`, as `name` or `name = value`.
fn serde_of(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut arguments = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let value =
                    if meta.input.peek(Token![=]) { meta.value()?.parse::<LitStr>()?.value() } else { String::new() };
                arguments.insert(name, value);
                Ok(())
            })
            .unwrap();
    }
    arguments
}

fn is_serialized(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        let mut found = false;
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta.path.segments.last().is_some_and(|last| last.ident == "Serialize");
            Ok(())
        });
        found
    })
}

fn kind_of(ty: &Type) -> Kind {
    let path = match ty {
        Type::Reference(reference) => return kind_of(&reference.elem),
        Type::Array(array) => {
            let len = match &array.len {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Int(len) => len.base10_parse().ok(),
                    _ => None,
                },
                _ => None,
            };
            let element = kind_of(&array.elem);
            return match len {
                Some(len) => Kind::Tuple(vec![element; len]),
                None => Kind::List(Box::new(element)),
            };
        }
        Type::Slice(slice) => return Kind::List(Box::new(kind_of(&slice.elem))),
        Type::Tuple(tuple) => return Kind::Tuple(tuple.elems.iter().map(kind_of).collect()),
        Type::Path(path) => &path.path,
        _ => return Kind::Plain("value"),
    };
    let last = path.segments.last().unwrap();
    let arguments: Vec<&Type> = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter_map(|argument| if let GenericArgument::Type(ty) = argument { Some(ty) } else { None })
            .collect(),
        _ => Vec::new(),
    };
    let inner = |index: usize| Box::new(arguments.get(index).map_or(Kind::Plain("value"), |ty| kind_of(ty)));
    match last.ident.to_string().as_str() {
        "Option" => Kind::Nullable(inner(0)),
        "Vec" | "BTreeSet" => Kind::List(inner(0)),
        "Box" | "Arc" | "Rc" | "Cow" => *inner(0),
        "BTreeMap" | "HashMap" | "Map" => Kind::Map(inner(1)),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "i128" => Kind::Plain("integer"),
        // `Amount` and `Figure` are serialized by hand.
        "f32" | "f64" | "Amount" => Kind::Plain("number"),
        "bool" => Kind::Plain("boolean"),
        "String" | "str" | "Figure" => Kind::Plain("string"),
        "Value" => Kind::Plain("value"),
        name if arguments.is_empty() => Kind::Named(name.to_owned()),
        name => Kind::Of(name.to_owned(), inner(0)),
    }
}

fn parameters_of(generics: &Generics) -> Vec<String> {
    let names = generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(parameter.ident.to_string()),
        _ => None,
    });
    names.collect()
}

fn keys_of(fields: &Fields) -> Vec<Key> {
    let key = |field: &Field| {
        let serde = serde_of(&field.attrs);
        if serde.contains_key("skip") {
            return None;
        }
        let name = field.ident.as_ref()?.to_string();
        let is_optional = serde.contains_key("skip_serializing_if");
        let kind = match (serde.get("with"), kind_of(&field.ty)) {
            (Some(with), _) => Kind::Named(with.clone()),
            (None, Kind::Nullable(inner)) if is_optional => *inner,
            (None, kind) => kind,
        };
        let name = serde.get("rename").cloned().unwrap_or(name);
        Some(Key { name, doc: doc_of(&field.attrs), kind, is_optional, is_flattened: serde.contains_key("flatten") })
    };
    fields.iter().filter_map(key).collect()
}

/// `DataParallel` in the case of `rename_all`.
fn renamed(variant: &str, case: Option<&String>) -> String {
    match case.map(String::as_str) {
        Some("lowercase") => variant.to_lowercase(),
        Some("kebab-case") => {
            let dashed = variant.char_indices().map(|(at, c)| {
                let dash = if at > 0 && c.is_uppercase() { "-" } else { "" };
                format!("{dash}{}", c.to_lowercase())
            });
            dashed.collect()
        }
        Some(other) => panic!("rename_all = \"{other}\" is not known here"),
        None => variant.to_owned(),
    }
}

/// The enums that `words!` declares.
struct Words(Vec<(String, Shape)>);

impl Parse for Words {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut enums = Vec::new();
        while !input.is_empty() {
            let doc = doc_of(&input.call(Attribute::parse_outer)?);
            input.parse::<syn::Visibility>()?;
            input.parse::<Token![enum]>()?;
            let name = input.parse::<syn::Ident>()?.to_string();
            let body;
            syn::braced!(body in input);
            let mut words = Vec::new();
            while !body.is_empty() {
                let meaning = doc_of(&body.call(Attribute::parse_outer)?);
                body.parse::<syn::Ident>()?;
                body.parse::<Token![=]>()?;
                words.push((body.parse::<LitStr>()?.value(), meaning));
                body.parse::<Token![,]>()?;
            }
            enums.push((name, Shape { doc, words, ..Shape::default() }));
        }
        Ok(Self(enums))
    }
}

/// The types and schemas that `reports!` serializes with a summary.
struct Schemas(Vec<(String, String)>);

impl Parse for Schemas {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut reports = Vec::new();
        while !input.is_empty() {
            let name = input.parse::<syn::Ident>()?.to_string();
            if input.peek(syn::token::Brace) {
                // Keys before the summary.
                input.parse::<proc_macro2::Group>()?;
            }
            input.parse::<Token![=]>()?;
            reports.push((name, input.parse::<LitStr>()?.value()));
            input.parse::<Token![,]>()?;
        }
        Ok(Self(reports))
    }
}

/// The keys with which the JSON of a report begins.
fn first_keys(schema: &str) -> [Key; 2] {
    let key = |name: &str, doc: String, kind| Key {
        name: name.to_owned(),
        doc,
        kind,
        is_optional: false,
        is_flattened: false,
    };
    let answer = "The answer in a sentence, who holds the memory, what to do, and a line to copy.".to_owned();
    [
        key("schema", format!("`{schema}`"), Kind::Plain("string")),
        key("summary", answer, Kind::Named("Summary".to_owned())),
    ]
}

/// Adds what `items` declare.
fn add_declared(items: &[Item], into: &mut Declared) {
    for item in items {
        match item {
            Item::Struct(item) if is_serialized(&item.attrs) => {
                let shape = Shape {
                    doc: doc_of(&item.attrs),
                    keys: keys_of(&item.fields),
                    parameters: parameters_of(&item.generics),
                    ..Shape::default()
                };
                into.shapes.push((item.ident.to_string(), shape));
            }
            Item::Enum(item) if is_serialized(&item.attrs) => {
                into.shapes.push((item.ident.to_string(), enum_shape(item)));
            }
            Item::Type(item) => {
                into.aliases.insert(item.ident.to_string(), kind_of(&item.ty));
            }
            Item::Impl(item) if item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Serialize")) => {
                // Such a type is described by its comment and the types in it.
                if let Kind::Named(name) = kind_of(&item.self_ty) {
                    let shape = items.iter().find_map(|item| match item {
                        Item::Struct(ty) if ty.ident == name => Some(Shape {
                            doc: doc_of(&ty.attrs),
                            parts: ty.fields.iter().map(|field| kind_of(&field.ty)).collect(),
                            ..Shape::default()
                        }),
                        Item::Enum(ty) if ty.ident == name => {
                            Some(Shape { doc: doc_of(&ty.attrs), ..Shape::default() })
                        }
                        _ => None,
                    });
                    into.shapes.push((name, shape.unwrap_or_default()));
                }
            }
            Item::Macro(item) if item.mac.path.is_ident("reports") => {
                into.schemas.extend(item.mac.parse_body::<Schemas>().unwrap().0);
            }
            Item::Macro(item) if item.mac.path.is_ident("words") => {
                into.shapes.extend(item.mac.parse_body::<Words>().unwrap().0);
            }
            _ => {}
        }
    }
}

/// The words of an enum and, if it is tagged, the keys of its variants.
fn enum_shape(item: &syn::ItemEnum) -> Shape {
    let serde = serde_of(&item.attrs);
    let mut shape = Shape { doc: doc_of(&item.attrs), ..Shape::default() };
    if serde.contains_key("untagged") {
        let fields = item.variants.iter().flat_map(|variant| &variant.fields);
        shape.variants = fields.map(|field| kind_of(&field.ty)).collect();
        return shape;
    }
    for variant in &item.variants {
        let name = serde_of(&variant.attrs).remove("rename");
        let word = name.unwrap_or_else(|| renamed(&variant.ident.to_string(), serde.get("rename_all")));
        shape.words.push((word, doc_of(&variant.attrs)));
        shape.keys.extend(keys_of(&variant.fields));
    }
    shape.keys.iter_mut().for_each(|key| key.is_optional = true);
    match serde.get("tag") {
        Some(tag) => {
            let tag = Key {
                name: tag.clone(),
                doc: "One of the words below; it decides which other keys there are.".to_owned(),
                kind: Kind::Plain("string"),
                is_optional: false,
                is_flattened: false,
            };
            shape.keys.insert(0, tag);
        }
        None => assert!(shape.keys.is_empty(), "{}: an enum with fields has a tag", item.ident),
    }
    shape
}

/// `kind` with the types in place of their aliases.
fn resolved(kind: &Kind, aliases: &BTreeMap<String, Kind>) -> Kind {
    let inner = |kind: &Kind| Box::new(resolved(kind, aliases));
    match kind {
        Kind::Plain(word) => Kind::Plain(word),
        Kind::Named(name) => match aliases.get(name) {
            Some(kind) => resolved(kind, aliases),
            None => kind.clone(),
        },
        Kind::Of(name, kind) => Kind::Of(name.clone(), inner(kind)),
        Kind::Tuple(kinds) => Kind::Tuple(kinds.iter().map(|kind| *inner(kind)).collect()),
        Kind::List(kind) => Kind::List(inner(kind)),
        Kind::Map(kind) => Kind::Map(inner(kind)),
        Kind::Nullable(kind) => Kind::Nullable(inner(kind)),
    }
}

/// Every serialized type by name, and the name of the type with each schema.
fn shapes() -> (Shapes, BTreeMap<String, String>) {
    let mut declared = Declared::default();
    // Pages and the command line serialize for their own scripts.
    let is_public = |path: &str| {
        path.starts_with("src/output/wording/") || !(path.starts_with("src/output/") || path.starts_with("src/cli/"))
    };
    for source in sources().iter().filter(|source| is_public(&source.path)) {
        let file = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{}: {e}", source.path));
        add_declared(&file.items, &mut declared);
    }
    let Declared { shapes: declared, schemas, mut aliases } = declared;
    aliases.retain(|alias, _| declared.iter().all(|(name, _)| name != alias));
    let mut roots = BTreeMap::new();
    let mut shapes = Shapes::new();
    for (name, mut shape) in declared {
        if let Some((_, schema)) = schemas.iter().find(|(report, _)| *report == name) {
            shape.keys.splice(0..0, first_keys(schema));
        }
        if let Some(schema) = shape.keys.iter().find(|key| key.name == "schema" && !key.doc.is_empty()) {
            roots.insert(schema.doc.trim_end_matches('.').trim_matches('`').to_owned(), name.clone());
        }
        for key in &mut shape.keys {
            key.kind = resolved(&key.kind, &aliases);
        }
        let before = shapes.insert(name.clone(), shape);
        assert!(before.is_none(), "two serialized types are called {name}");
    }
    (shapes, roots)
}

/// The types that `kind` names.
fn named(kind: &Kind) -> Vec<&str> {
    match kind {
        Kind::Plain(_) => Vec::new(),
        Kind::Named(name) => vec![name],
        Kind::Of(name, inner) => [vec![name.as_str()], named(inner)].concat(),
        Kind::Tuple(kinds) => kinds.iter().flat_map(named).collect(),
        Kind::List(inner) | Kind::Map(inner) | Kind::Nullable(inner) => named(inner),
    }
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
            write!(text, "{}\n\n", shape.doc).unwrap();
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
        for key in self.flat(shape) {
            let label = self.label(&key.kind, shape);
            if key.is_flattened {
                all_of.push(label);
                continue;
            }
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
        for (ty, keys) in known {
            let ty = format!("[{ty}](#{})", ty.to_lowercase());
            write!(rows, "As in {ty}: {}.\n\n", keys.join(", ")).unwrap();
        }
        rows
    }
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
