//! The serialized types of the library, read from its source: keys, words and doc comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::support::rust_source::sources;
use serde_json::{Value, json};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Field, Fields, GenericArgument, Generics, Item, Lit, LitStr, Meta, PathArguments, PathSegment,
    Token, Type,
};

/// A serialized type.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    pub(crate) doc: String,
    pub(crate) keys: Vec<Key>,
    /// The words of an enum that has no other keys, with their meanings.
    pub(crate) words: Vec<(String, String)>,
    /// The types that an untagged enum may have.
    pub(crate) variants: Vec<Value>,
    /// The values of a map that is serialized by hand, if they are of few types.
    pub(crate) values: Option<Vec<Value>>,
    /// The keys that are promised, if the others are under `details`.
    pub(crate) promised: Option<Vec<String>>,
    /// The name of its type parameter.
    pub(crate) parameter: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) doc: String,
    /// Refers to other types by name, as do all schemas before they are resolved.
    pub(crate) schema: Value,
    pub(crate) is_optional: bool,
    pub(crate) is_flattened: bool,
}

/// The serialized types by name.
#[derive(Debug, Default)]
pub(crate) struct Types {
    pub(crate) shapes: BTreeMap<String, Shape>,
    pub(crate) aliases: BTreeMap<String, Value>,
    /// Reports that `reports!` serializes, with their schemas.
    pub(crate) reports: BTreeMap<String, String>,
    /// The promised keys of reports with details.
    promised: BTreeMap<String, Vec<String>>,
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
    // A link to an item becomes its name.
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

/// The schema of a type; the name of a type parameter counts as that of a type.
fn schema_of(ty: &Type) -> Value {
    let path = match ty {
        Type::Reference(reference) => return schema_of(&reference.elem),
        Type::Slice(slice) => return json!({ "type": "array", "items": schema_of(&slice.elem) }),
        Type::Array(array) => {
            let mut schema = json!({ "type": "array", "items": schema_of(&array.elem) });
            if let Expr::Lit(literal) = &array.len
                && let Lit::Int(len) = &literal.lit
            {
                let len: usize = len.base10_parse().unwrap();
                schema["minItems"] = json!(len);
                schema["maxItems"] = json!(len);
            }
            return schema;
        }
        Type::Tuple(tuple) if tuple.elems.is_empty() => return json!({ "type": "null" }),
        Type::Tuple(tuple) => {
            let items: Vec<Value> = tuple.elems.iter().map(schema_of).collect();
            return json!({ "type": "array", "minItems": items.len(), "prefixItems": items, "items": false });
        }
        Type::Path(path) => &path.path,
        // The name of a function type, which no report has.
        _ => return json!(false),
    };
    let last = path.segments.last().unwrap();
    let inner = |index: usize| schema_of(type_arguments(last)[index]);
    match last.ident.to_string().as_str() {
        "Option" => nullable(inner(0)),
        "Vec" | "BTreeSet" => json!({ "type": "array", "items": inner(0) }),
        "Box" | "Arc" | "Rc" | "Cow" => inner(0),
        "BTreeMap" | "HashMap" | "Map" => json!({ "type": "object", "additionalProperties": inner(1) }),
        "u8" | "u16" | "u32" | "u64" | "usize" => json!({ "type": "integer", "minimum": 0 }),
        "i32" | "i64" | "i128" => json!({ "type": "integer" }),
        // `Amount`, `Figure` and `Engine` are serialized by hand.
        "f32" | "f64" | "Amount" => json!({ "type": "number" }),
        "bool" => json!({ "type": "boolean" }),
        "String" | "str" | "Figure" | "Engine" => json!({ "type": "string" }),
        "Value" => json!({}),
        name if type_arguments(last).is_empty() => json!({ "$ref": name }),
        name => json!({ "$ref": name, "of": inner(0) }),
    }
}

fn type_arguments(segment: &PathSegment) -> Vec<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return Vec::new() };
    let types = arguments.args.iter();
    types.filter_map(|argument| if let GenericArgument::Type(ty) = argument { Some(ty) } else { None }).collect()
}

fn nullable(mut schema: Value) -> Value {
    match schema.get("type") {
        Some(ty) => {
            schema["type"] = json!([ty, "null"]);
            schema
        }
        None => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

fn parameter_of(generics: &Generics) -> Option<String> {
    generics.type_params().next().map(|parameter| parameter.ident.to_string())
}

fn keys_of(fields: &Fields) -> Vec<Key> {
    let key = |field: &Field| {
        let serde = serde_of(&field.attrs);
        if serde.contains_key("skip") {
            return None;
        }
        let name = field.ident.as_ref()?.unraw().to_string();
        let is_optional = serde.contains_key("skip_serializing_if");
        let mut schema = schema_of(&field.ty);
        if let Some(with) = serde.get("with") {
            schema = json!({ "$ref": with });
        } else if let (true, Type::Path(option)) = (is_optional, &field.ty)
            && let Some(last) = option.path.segments.last().filter(|last| last.ident == "Option")
        {
            // Absent rather than null.
            schema = schema_of(type_arguments(last)[0]);
        }
        let name = serde.get("rename").cloned().unwrap_or(name);
        Some(Key { name, doc: doc_of(&field.attrs), schema, is_optional, is_flattened: serde.contains_key("flatten") })
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

/// A report and its keys that `promised!` names.
struct Promised(String, Vec<String>);

impl Parse for Promised {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let report = input.parse::<syn::Ident>()?.to_string();
        let body;
        syn::braced!(body in input);
        let keys = Punctuated::<syn::Ident, Token![,]>::parse_terminated(&body)?;
        Ok(Self(report, keys.iter().map(ToString::to_string).collect()))
    }
}

/// The keys with which the JSON of a report begins.
fn first_keys(schema: &str) -> [Key; 2] {
    let key = |name: &str, doc: &str, schema| Key {
        name: name.to_owned(),
        doc: doc.to_owned(),
        schema,
        is_optional: false,
        is_flattened: false,
    };
    let answer = "The answer in a sentence, who holds the memory, what to do, and a line to copy.";
    [
        key("schema", &format!("`{schema}`"), json!({ "type": "string" })),
        key("summary", answer, json!({ "$ref": "Summary" })),
    ]
}

impl Types {
    /// Reads them all.
    pub(crate) fn read() -> Self {
        // Pages and the command line serialize for their own scripts.
        let is_public = |path: &str| {
            path.starts_with("src/output/wording/")
                || !(path.starts_with("src/output/") || path.starts_with("src/cli/"))
        };
        let mut types = Self::default();
        for source in sources().iter().filter(|source| is_public(&source.path)) {
            let file = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{}: {e}", source.path));
            types.add_declared(&file.items);
        }
        for (report, schema) in &types.reports {
            types.shapes.get_mut(report).unwrap().keys.splice(0..0, first_keys(schema));
        }
        for (report, keys) in std::mem::take(&mut types.promised) {
            types.shapes.get_mut(&report).unwrap().promised = Some(keys);
        }
        for key in types.shapes.values_mut().flat_map(|shape| &mut shape.keys) {
            if key.name == "schema" && key.doc.starts_with("`oomscope/") {
                key.schema = json!({ "const": key.doc.trim_end_matches('.').trim_matches('`') });
            }
        }
        types
    }

    fn add(&mut self, name: &syn::Ident, shape: Shape) {
        let before = self.shapes.insert(name.to_string(), shape);
        assert!(before.is_none(), "two serialized types are called {name}");
    }

    fn add_declared(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Struct(item) if is_serialized(&item.attrs) => {
                    let (doc, keys) = (doc_of(&item.attrs), keys_of(&item.fields));
                    let parameter = parameter_of(&item.generics);
                    self.add(&item.ident, Shape { doc, keys, parameter, ..Shape::default() });
                }
                Item::Struct(item) if is_serialized_by_hand(&item.ident, items) => {
                    let fields = item.fields.iter().filter(|field| field.ident.is_some());
                    // The values of such a map are in arrays, by type.
                    let values = fields.map(|field| schema_of(&field.ty)["items"].clone()).collect();
                    self.add(&item.ident, Shape { doc: doc_of(&item.attrs), values: Some(values), ..Shape::default() });
                }
                Item::Enum(item) if is_serialized(&item.attrs) => self.add(&item.ident, enum_shape(item)),
                Item::Type(item) => {
                    self.aliases.insert(item.ident.to_string(), schema_of(&item.ty));
                }
                Item::Macro(item) if item.mac.path.is_ident("reports") => {
                    self.reports.extend(item.mac.parse_body::<Schemas>().unwrap().0);
                }
                Item::Macro(item) if item.mac.path.is_ident("promised") => {
                    let Promised(report, keys) = item.mac.parse_body().unwrap();
                    self.promised.insert(report, keys);
                }
                Item::Macro(item) if item.mac.path.is_ident("sentences") => {
                    let facts = Punctuated::<syn::Ident, Token![,]>::parse_terminated;
                    let facts = item.mac.parse_body_with(facts).unwrap();
                    self.aliases.extend(facts.iter().map(|fact| (fact.to_string(), json!({ "type": "string" }))));
                }
                Item::Macro(item) if item.mac.path.is_ident("words") => {
                    self.shapes.extend(item.mac.parse_body::<Words>().unwrap().0);
                }
                _ => {}
            }
        }
    }
}

fn is_serialized_by_hand(name: &syn::Ident, items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Impl(item) => {
            item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Serialize"))
                && matches!(&*item.self_ty, Type::Path(ty) if ty.path.is_ident(name))
        }
        _ => false,
    })
}

/// The schema of one of `words`.
pub(crate) fn words_schema(words: &[(String, String)]) -> Value {
    let word = |(word, meaning): &(String, String)| match meaning.as_str() {
        "" => json!({ "const": word }),
        _ => json!({ "const": word, "description": meaning }),
    };
    json!({ "oneOf": words.iter().map(word).collect::<Vec<_>>() })
}

/// The words of an enum and, if it is tagged, the keys of its variants.
fn enum_shape(item: &syn::ItemEnum) -> Shape {
    let serde = serde_of(&item.attrs);
    let mut shape = Shape { doc: doc_of(&item.attrs), ..Shape::default() };
    if serde.contains_key("untagged") {
        let fields = item.variants.iter().flat_map(|variant| &variant.fields);
        shape.variants = fields.map(|field| schema_of(&field.ty)).collect();
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
                doc: "It decides which other keys there are.".to_owned(),
                schema: words_schema(&std::mem::take(&mut shape.words)),
                is_optional: false,
                is_flattened: false,
            };
            shape.keys.insert(0, tag);
        }
        None => assert!(shape.keys.is_empty(), "{}: an enum with fields has a tag", item.ident),
    }
    shape
}
