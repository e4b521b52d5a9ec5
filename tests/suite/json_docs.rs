//! docs/json.md describes every key of the JSON: its tables are written from the doc comments of the serialized types.
//!
//! `UPDATE_DOCS=1` writes them. Between `<!-- keys: oomscope/analyze/1 -->` and `<!-- end -->` stands the type whose
//! `schema` that is, followed by the types it contains that no earlier part of the page describes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use crate::support::rust_source::sources;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, Field, Fields, GenericArgument, Item, Lit, LitStr, Meta, PathArguments, Token,
    Type,
};

/// A serialized type, as docs/json.md shows it.
#[derive(Debug, Clone, Default)]
struct Shape {
    doc: String,
    keys: Vec<Key>,
    words: Vec<(String, String)>,
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
    List(Box<Kind>),
    Map(Box<Kind>),
    Nullable(Box<Kind>),
}

type Shapes = BTreeMap<String, Shape>;

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
    let paragraph = text.split("  ").next().unwrap_or_default();
    paragraph.replace("[`", "`").replace("`]", "`").replace('|', "\\|").trim().to_owned()
}

/// Every argument of `#[serde(..)]`, as `name` or `name = value`.
fn serde_of(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut arguments = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let value = if meta.input.peek(Token![=]) {
                    meta.value()?.parse::<LitStr>()?.value()
                } else {
                    String::new()
                };
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
        Type::Array(array) => return Kind::List(Box::new(kind_of(&array.elem))),
        Type::Slice(slice) => return Kind::List(Box::new(kind_of(&slice.elem))),
        Type::Tuple(tuple) => {
            return Kind::List(Box::new(tuple.elems.first().map_or(Kind::Plain("value"), kind_of)));
        }
        Type::Path(path) => &path.path,
        _ => return Kind::Plain("value"),
    };
    let last = path.segments.last().unwrap();
    let arguments: Vec<&Type> = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter_map(
                |argument| if let GenericArgument::Type(ty) = argument { Some(ty) } else { None },
            )
            .collect(),
        _ => Vec::new(),
    };
    let inner = |index: usize| {
        Box::new(arguments.get(index).map_or(Kind::Plain("value"), |ty| kind_of(ty)))
    };
    match last.ident.to_string().as_str() {
        "Option" => Kind::Nullable(inner(0)),
        "Vec" | "BTreeSet" => Kind::List(inner(0)),
        "Box" | "Arc" | "Rc" | "Cow" => *inner(0),
        "BTreeMap" | "HashMap" => Kind::Map(inner(1)),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "i128" => Kind::Plain("integer"),
        "f32" | "f64" => Kind::Plain("number"),
        "bool" => Kind::Plain("boolean"),
        "String" | "str" => Kind::Plain("string"),
        "Value" => Kind::Plain("value"),
        name => Kind::Named(name.to_owned()),
    }
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
        Some(Key {
            name,
            doc: doc_of(&field.attrs),
            kind,
            is_optional,
            is_flattened: serde.contains_key("flatten"),
        })
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

/// The shapes that `items` declare.
fn shapes_in(items: &[Item], into: &mut Vec<(String, Shape)>) {
    for item in items {
        match item {
            Item::Struct(item) if is_serialized(&item.attrs) => {
                let shape = Shape {
                    doc: doc_of(&item.attrs),
                    keys: keys_of(&item.fields),
                    words: Vec::new(),
                };
                into.push((item.ident.to_string(), shape));
            }
            Item::Enum(item) if is_serialized(&item.attrs) => {
                let serde = serde_of(&item.attrs);
                let mut shape = Shape { doc: doc_of(&item.attrs), ..Shape::default() };
                for variant in &item.variants {
                    let word = renamed(&variant.ident.to_string(), serde.get("rename_all"));
                    shape.words.push((word, doc_of(&variant.attrs)));
                    shape.keys.extend(keys_of(&variant.fields));
                }
                if let Some(tag) = serde.get("tag") {
                    let doc =
                        "one of the words below; it decides which other keys there are".to_owned();
                    let kind = Kind::Plain("string");
                    let tag = Key {
                        name: tag.clone(),
                        doc,
                        kind,
                        is_optional: false,
                        is_flattened: false,
                    };
                    shape.keys.iter_mut().for_each(|key| key.is_optional = true);
                    shape.keys.insert(0, tag);
                }
                into.push((item.ident.to_string(), shape));
            }
            Item::Impl(item)
                if item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Serialize")) =>
            {
                // Described by the comment of the type.
                if let Kind::Named(name) = kind_of(&item.self_ty) {
                    let ty = items.iter().find_map(|item| match item {
                        Item::Struct(ty) if ty.ident == name => Some(&ty.attrs),
                        Item::Enum(ty) if ty.ident == name => Some(&ty.attrs),
                        _ => None,
                    });
                    let doc = ty.map(|attributes| doc_of(attributes)).unwrap_or_default();
                    into.push((name, Shape { doc, ..Shape::default() }));
                }
            }
            Item::Macro(item) if item.mac.path.is_ident("words") => {
                into.extend(
                    item.mac.parse_body::<Words>().map(|words| words.0).unwrap_or_default(),
                );
            }
            _ => {}
        }
    }
}

fn shapes() -> (Shapes, BTreeMap<String, String>) {
    let mut found = Vec::new();
    for source in sources() {
        let file = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{}: {e}", source.path));
        shapes_in(&file.items, &mut found);
    }
    let mut roots = BTreeMap::new();
    let mut shapes = Shapes::new();
    for (name, shape) in found {
        if let Some(schema) = shape.keys.iter().find(|key| key.name == "schema") {
            roots.insert(schema.doc.trim_matches(['`', '.']).to_owned(), name.clone());
        }
        assert!(
            shapes.insert(name.clone(), shape).is_none(),
            "two serialized types are called {name}"
        );
    }
    (shapes, roots)
}

/// The name and its link; types without keys or words of their own are what they wrap.
fn label(kind: &Kind, shapes: &Shapes) -> String {
    match kind {
        Kind::Plain(word) => (*word).to_owned(),
        Kind::Named(name) => match shapes.get(name) {
            Some(_) => format!("[{name}](#{})", name.to_lowercase()),
            None => "value".to_owned(),
        },
        Kind::List(inner) => format!("list of {}", label(inner, shapes)),
        Kind::Map(inner) => format!("object of {}", label(inner, shapes)),
        Kind::Nullable(inner) => format!("{} or null", label(inner, shapes)),
    }
}

fn named(kind: &Kind) -> Option<&str> {
    match kind {
        Kind::Plain(_) => None,
        Kind::Named(name) => Some(name),
        Kind::List(inner) | Kind::Map(inner) | Kind::Nullable(inner) => named(inner),
    }
}

/// The keys of `shape` with those of flattened fields in their place.
fn flat(shape: &Shape, shapes: &Shapes) -> Vec<Key> {
    let keys = shape.keys.iter().flat_map(|key| {
        match named(&key.kind).and_then(|name| shapes.get(name)) {
            Some(inner) if key.is_flattened && !inner.keys.is_empty() => {
                let mut keys = flat(inner, shapes);
                // An absent struct takes all its keys with it.
                keys.iter_mut()
                    .for_each(|inner| inner.is_optional |= matches!(key.kind, Kind::Nullable(_)));
                keys
            }
            _ => vec![key.clone()],
        }
    });
    keys.collect()
}

/// The part of the page on `root` and what it contains, without what is `described` already.
fn part(root: &str, shapes: &Shapes, described: &mut BTreeSet<String>) -> String {
    let mut text = String::new();
    let mut open = VecDeque::from([root.to_owned()]);
    while let Some(name) = open.pop_front() {
        let Some(shape) = shapes.get(&name) else { continue };
        if !described.insert(name.clone()) {
            continue;
        }
        if name != root {
            write!(text, "### {name}\n\n").unwrap();
        }
        write!(text, "{}\n\n", shape.doc).unwrap();
        let keys = flat(shape, shapes);
        if !keys.is_empty() {
            text += "| key | type | meaning |\n|---|---|---|\n";
            for key in &keys {
                let mark = if key.is_optional { "?" } else { "" };
                writeln!(
                    text,
                    "| `{}`{mark} | {} | {} |",
                    key.name,
                    label(&key.kind, shapes),
                    key.doc
                )
                .unwrap();
                open.extend(named(&key.kind).map(str::to_owned));
            }
            text += "\n";
        }
        if !shape.words.is_empty() {
            text += "| word | meaning |\n|---|---|\n";
            for (word, meaning) in &shape.words {
                writeln!(text, "| `{word}` | {meaning} |").unwrap();
            }
            text += "\n";
        }
    }
    text
}

#[test]
fn every_key_of_the_json_is_described_by_its_type() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (shapes, mut roots) = shapes();
    let mut described = BTreeSet::new();
    let mut written = String::new();
    let mut rest = page.as_str();
    while let Some((before, after)) = rest.split_once("<!-- keys: ") {
        let (schema, after) = after.split_once(" -->").unwrap();
        let (_, after) =
            after.split_once("<!-- end -->").expect("<!-- end --> after <!-- keys: .. -->");
        let root =
            roots.remove(schema).unwrap_or_else(|| panic!("no type has the schema {schema}"));
        let part = part(&root, &shapes, &mut described);
        write!(written, "{before}<!-- keys: {schema} -->\n\n{part}<!-- end -->").unwrap();
        rest = after;
    }
    written += rest;
    assert!(roots.is_empty(), "docs/json.md has no part for {roots:?}");
    let undescribed: Vec<String> = described
        .iter()
        .flat_map(|name| {
            shapes[name]
                .keys
                .iter()
                .filter(|key| key.doc.is_empty())
                .map(move |key| format!("{name}.{}", key.name))
        })
        .collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert!(undescribed.is_empty(), "no doc comment: {undescribed:?}");
    assert!(
        written == page || std::env::var_os("UPDATE_DOCS").is_some(),
        "docs/json.md is out of date: run with UPDATE_DOCS=1"
    );
}
