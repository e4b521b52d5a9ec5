//! The serialized types of the library, read from its source: keys, words and doc comments, for `json_docs.rs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::support::rust_source::sources;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Field, Fields, GenericArgument, GenericParam, Generics, Item, Lit, LitStr, Meta, PathArguments,
    Token, Type,
};

/// A serialized type, as docs/json.md shows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    pub(crate) doc: String,
    pub(crate) keys: Vec<Key>,
    pub(crate) words: Vec<(String, String)>,
    /// The types that an untagged enum may have.
    pub(crate) variants: Vec<Kind>,
    /// The types of a type that is serialized by hand.
    pub(crate) parts: Vec<Kind>,
    pub(crate) parameters: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) kind: Kind,
    pub(crate) is_optional: bool,
    pub(crate) is_flattened: bool,
}

/// What a value is in JSON: words around the named types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain(&'static str),
    Named(String),
    /// A type with a parameter.
    Of(String, Box<Kind>),
    Tuple(Vec<Kind>),
    List(Box<Kind>),
    Map(Box<Kind>),
    Nullable(Box<Kind>),
}

pub(crate) type Shapes = BTreeMap<String, Shape>;

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
            Item::Macro(item) if item.mac.path.is_ident("sentences") => {
                let facts = Punctuated::<syn::Ident, Token![,]>::parse_terminated;
                let facts = item.mac.parse_body_with(facts).unwrap();
                into.aliases.extend(facts.iter().map(|fact| (fact.to_string(), Kind::Plain("string"))));
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
pub(crate) fn shapes() -> (Shapes, BTreeMap<String, String>) {
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
pub(crate) fn named(kind: &Kind) -> Vec<&str> {
    match kind {
        Kind::Plain(_) => Vec::new(),
        Kind::Named(name) => vec![name],
        Kind::Of(name, inner) => [vec![name.as_str()], named(inner)].concat(),
        Kind::Tuple(kinds) => kinds.iter().flat_map(named).collect(),
        Kind::List(inner) | Kind::Map(inner) | Kind::Nullable(inner) => named(inner),
    }
}
