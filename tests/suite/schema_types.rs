//! The serialized types of the library, read from its source: keys, words and doc comments become a JSON Schema.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

use crate::support::rust_source::sources;
use serde_json::{Value, json};
use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Data, DeriveInput, Expr, ExprLit, ExprStruct, Field, GenericArgument, Item, Lit, Macro, Member, Meta,
    MetaNameValue, Path, PathArguments, Token, Type, Variant,
};

/// All other ratios are shares.
const UNBOUNDED_RATIOS: [&str; 3] = ["allocated_error_ratio", "max_creep_ratio", "reserved_error_ratio"];

/// A file without these has no serialized type.
const READ: [&str; 5] = ["erialize", "words!", "reports!", "promised!", "sentences!"];

/// The serialized types by name.
#[derive(Default)]
pub(crate) struct Types {
    types: BTreeMap<String, DeriveInput>,
    /// The schema of each report.
    schemas: BTreeMap<String, String>,
    /// The promised keys of types whose other keys are under `details`.
    promised: BTreeMap<String, Vec<String>>,
    /// The facts that are serialized as a sentence.
    sentences: Vec<String>,
}

#[derive(Clone)]
struct Key {
    name: String,
    schema: Value,
    is_optional: bool,
}

fn text_of(expression: &Expr) -> Option<String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = expression else { return None };
    Some(text.value())
}

fn name_of(path: &Path) -> String {
    path.segments.last().unwrap().ident.to_string()
}

/// The first paragraph of doc comments as one line, with links to items reduced to their names.
fn doc_of(attributes: &[Attribute]) -> String {
    let pairs = attributes.iter().filter_map(|attribute| attribute.meta.require_name_value().ok());
    let lines = pairs.filter(|pair| pair.path.is_ident("doc")).filter_map(|pair| text_of(&pair.value));
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).take_while(|line| !line.is_empty()).collect();
    let paragraph = lines.join(" ");
    let mut parts = paragraph.split("[`");
    let mut doc = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once("`]").unwrap_or((part, ""));
        let name = if path.starts_with("crate::") { path.rsplit("::").next() } else { Some(path) };
        write!(doc, "`{}`{rest}", name.unwrap()).unwrap();
    }
    doc
}

/// The arguments of `#[derive(..)]` or `#[serde(..)]`.
fn arguments(attributes: &[Attribute], list: &str) -> Vec<Meta> {
    let lists = attributes.iter().filter(|attribute| attribute.path().is_ident(list));
    lists.flat_map(|list| list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap()).collect()
}

/// The value of an argument of `#[serde(..)]`; empty if it has none.
fn serde_of(attributes: &[Attribute], argument: &str) -> Option<String> {
    let metas = arguments(attributes, "serde");
    let meta = metas.iter().find(|meta| meta.path().is_ident(argument))?;
    Some(meta.require_name_value().ok().and_then(|pair| text_of(&pair.value)).unwrap_or_default())
}

/// What is read from a file is also written to one, if by hand.
fn derives_serialize(attributes: &[Attribute]) -> bool {
    let derived = arguments(attributes, "derive");
    derived.iter().any(|meta| ["Serialize", "Deserialize"].contains(&&*name_of(meta.path())))
}

/// The types between the angle brackets of the last name.
fn type_arguments(path: &Path) -> Vec<&Type> {
    let PathArguments::AngleBracketed(arguments) = &path.segments.last().unwrap().arguments else { return Vec::new() };
    let types = arguments.args.iter();
    types.filter_map(|argument| if let GenericArgument::Type(ty) = argument { Some(ty) } else { None }).collect()
}

/// The type in an `Option`.
fn inside_option(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Path(option) if name_of(&option.path) == "Option" => Some(type_arguments(&option.path)[0]),
        _ => None,
    }
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

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn kebab_case(variant: &str) -> String {
    let dashed = variant.char_indices().map(|(at, c)| {
        let dash = if at > 0 && c.is_uppercase() { "-" } else { "" };
        format!("{dash}{}", c.to_lowercase())
    });
    dashed.collect()
}

/// The words of an enum with their meanings. `words!` writes a word as a discriminant.
fn words_schema<'v>(variants: impl IntoIterator<Item = &'v Variant>) -> Value {
    let word = |variant: &Variant| {
        let given = variant.discriminant.as_ref().and_then(|(_, word)| text_of(word));
        let word = given.unwrap_or_else(|| kebab_case(&variant.ident.to_string()));
        json!({ "const": word, "description": doc_of(&variant.attrs) })
    };
    json!({ "oneOf": variants.into_iter().map(word).collect::<Vec<_>>() })
}

impl Types {
    /// Reads them all.
    pub(crate) fn read() -> Self {
        let mut types = Self::default();
        let is_read = |text: &str| READ.iter().any(|word| text.contains(word));
        for source in sources().iter().filter(|source| is_read(&source.text)) {
            let file = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{}: {e}", source.path));
            for item in file.items {
                match item {
                    Item::Struct(item) => types.add_serialized(item.into(), &source.text),
                    Item::Enum(item) => types.add_serialized(item.into(), &source.text),
                    Item::Macro(item) => types.add_declared(&item.mac),
                    _ => {}
                }
            }
        }
        types
    }

    fn add_serialized(&mut self, ty: DeriveInput, source: &str) {
        if derives_serialize(&ty.attrs) || source.contains(&format!("impl Serialize for {} {{", ty.ident)) {
            self.add(ty);
        }
    }

    fn add(&mut self, ty: DeriveInput) {
        let name = ty.ident.to_string();
        if let Data::Struct(item) = &ty.data
            && let Some(field) = item.fields.iter().find(|field| field.ident.as_ref().is_some_and(|it| it == "schema"))
            && let Some(schema) = doc_of(&field.attrs).split('`').find(|part| part.starts_with("oomscope/"))
        {
            self.schemas.insert(name.clone(), schema.to_owned());
        }
        assert!(self.types.insert(name.clone(), ty).is_none(), "two serialized types are called {name}");
    }

    /// Reads the macros that serialize types.
    fn add_declared(&mut self, declared: &Macro) {
        match name_of(&declared.path).as_str() {
            "words" => self.add(declared.parse_body().unwrap()),
            "reports" => {
                let reports =
                    declared.parse_body_with(Punctuated::<MetaNameValue, Token![,]>::parse_terminated).unwrap();
                let schemas = reports.iter().map(|pair| (name_of(&pair.path), text_of(&pair.value).unwrap()));
                self.schemas.extend(schemas);
            }
            "promised" => {
                let report: ExprStruct = declared.parse_body().unwrap();
                let keys = report.fields.iter().filter_map(|field| match &field.member {
                    Member::Named(name) => Some(name.to_string()),
                    Member::Unnamed(_) => None,
                });
                self.promised.insert(name_of(&report.path), keys.collect());
            }
            "sentences" => {
                let facts = declared.parse_body_with(Punctuated::<Path, Token![,]>::parse_terminated).unwrap();
                self.sentences.extend(facts.iter().map(name_of));
            }
            _ => {}
        }
    }

    /// The name of the type with each `schema`.
    pub(crate) fn roots(&self) -> BTreeMap<&str, &str> {
        self.schemas.iter().map(|(name, schema)| (schema.as_str(), name.as_str())).collect()
    }

    /// The definitions of `roots` and of every type in them, by name.
    pub(crate) fn definitions(&self, roots: &[&str]) -> BTreeMap<String, Value> {
        let mut definitions = BTreeMap::new();
        let mut open: Vec<String> = roots.iter().map(|&root| root.to_owned()).collect();
        while let Some(name) = open.pop() {
            if let Entry::Vacant(place) = definitions.entry(name) {
                let definition = self.definition(place.key());
                let text = definition.to_string();
                let named = text.split("\"#/$defs/").skip(1);
                open.extend(named.map(|rest| rest.split('"').next().unwrap().to_owned()));
                place.insert(definition);
            }
        }
        definitions
    }

    fn declared(&self, name: &str) -> &DeriveInput {
        self.types.get(name).unwrap_or_else(|| panic!("{name} is not a serialized type"))
    }

    fn definition(&self, name: &str) -> Value {
        let ty = self.declared(name);
        let mut schema = match &ty.data {
            Data::Enum(item) if item.variants.iter().all(|variant| variant.fields.is_empty()) => {
                words_schema(&item.variants)
            }
            Data::Struct(item) if !derives_serialize(&ty.attrs) => {
                // A map. Its values are in arrays, by type.
                let fields = item.fields.iter().filter(|field| field.ident.is_some());
                let values: Vec<Value> = fields.map(|field| self.schema_of(&field.ty)["items"].clone()).collect();
                match values.as_slice() {
                    [] => json!({ "type": "object" }),
                    values => json!({ "type": "object", "additionalProperties": { "anyOf": values } }),
                }
            }
            _ => self.object_schema(name),
        };
        schema["description"] = json!(doc_of(&ty.attrs));
        schema
    }

    fn object_schema(&self, name: &str) -> Value {
        let mut keys = self.keys(name);
        if let Some(promised) = self.promised.get(name) {
            for key in promised {
                assert!(keys.iter().any(|other| other.name == *key), "{name} has no key {key}");
            }
            keys.retain(|key| promised.contains(&key.name));
            let doc = "More about it, for people who look closer. These keys are not promised: they may change with any release.";
            keys.push(Key::required("details", json!({ "type": "object", "description": doc })));
        }
        let required: Vec<&str> = keys.iter().filter(|key| !key.is_optional).map(|key| key.name.as_str()).collect();
        let properties: BTreeMap<&str, &Value> = keys.iter().map(|key| (key.name.as_str(), &key.schema)).collect();
        json!({ "type": "object", "required": required, "properties": properties })
    }

    /// The keys of a type and of what it flattens.
    fn keys(&self, name: &str) -> Vec<Key> {
        let ty = self.declared(name);
        match &ty.data {
            Data::Enum(item) => {
                let mut words = words_schema(&item.variants);
                words["description"] = json!("It decides which other keys there are.");
                let tag = serde_of(&ty.attrs, "tag").expect("an enum with fields has a tag");
                let fields = item.variants.iter().flat_map(|variant| &variant.fields);
                let keys = fields.flat_map(|field| self.keys_of(name, field));
                std::iter::once(Key::required(&tag, words))
                    .chain(keys.map(|key| Key { is_optional: true, ..key }))
                    .collect()
            }
            Data::Struct(item) => {
                let keys: Vec<Key> = item.fields.iter().flat_map(|field| self.keys_of(name, field)).collect();
                match self.schemas.get(name) {
                    Some(schema) if keys.iter().all(|key| key.name != "schema") => {
                        let doc = "The answer in a sentence, who holds the memory, what to do, and a line to copy.";
                        let summary = json!({ "$ref": "#/$defs/Summary", "description": doc });
                        let schema = Key::required("schema", json!({ "const": schema }));
                        [vec![schema, Key::required("summary", summary)], keys].concat()
                    }
                    _ => keys,
                }
            }
            Data::Union(_) => Vec::new(),
        }
    }

    /// The key of a field of the type `owner`, or those that it flattens.
    fn keys_of(&self, owner: &str, field: &Field) -> Vec<Key> {
        let serde = |argument| serde_of(&field.attrs, argument);
        if serde("skip").is_some() {
            return Vec::new();
        }
        let inner = inside_option(&field.ty);
        if serde("flatten").is_some() {
            let Type::Path(ty) = inner.unwrap_or(&field.ty) else { panic!("{owner} flattens no object") };
            return self.keys(&serde("with").unwrap_or_else(|| name_of(&ty.path)));
        }
        let name = serde("rename").unwrap_or_else(|| field.ident.as_ref().unwrap().unraw().to_string());
        let is_optional = serde("skip_serializing_if").is_some();
        let schema = match self.schemas.get(owner) {
            Some(schema) if name == "schema" => json!({ "const": schema }),
            _ => {
                // Absent rather than null.
                let mut schema = self.schema_of(inner.filter(|_| is_optional).unwrap_or(&field.ty));
                schema["description"] = json!(self.description(owner, &name, doc_of(&field.attrs)));
                if name.ends_with("_ratio") && !UNBOUNDED_RATIOS.contains(&name.as_str()) {
                    schema["minimum"] = json!(0);
                    schema["maximum"] = json!(1);
                }
                schema
            }
        };
        vec![Key { name, schema, is_optional }]
    }

    /// The comment `doc` of a key, or that of the key that it refers to. Readers of JSON know null and absent keys, and no
    /// `None`.
    fn description(&self, owner: &str, key: &str, doc: String) -> Value {
        assert!(!doc.is_empty() && !doc.contains("`None`"), "the comment of {owner}::{key}: {doc:?}");
        let referred = doc.strip_prefix("See `").and_then(|doc| doc.trim_end_matches("`.").split_once("::"));
        let Some((ty, name)) = referred else { return json!(doc) };
        self.keys(ty).iter().find(|key| key.name == name).unwrap().schema["description"].clone()
    }

    /// The schema of a type; the name of a type parameter counts as that of a type.
    fn schema_of(&self, ty: &Type) -> Value {
        let array = |items: &Type| json!({ "type": "array", "items": self.schema_of(items) });
        let path = match ty {
            Type::Reference(reference) => return self.schema_of(&reference.elem),
            Type::Slice(slice) => return array(&slice.elem),
            Type::Array(fixed) => {
                let mut schema = array(&fixed.elem);
                if let Expr::Lit(ExprLit { lit: Lit::Int(len), .. }) = &fixed.len {
                    let len: usize = len.base10_parse().unwrap();
                    schema["minItems"] = json!(len);
                    schema["maxItems"] = json!(len);
                }
                return schema;
            }
            Type::Tuple(tuple) => {
                let items: Vec<Value> = tuple.elems.iter().map(|item| self.schema_of(item)).collect();
                return json!({ "type": "array", "minItems": items.len(), "prefixItems": items, "items": false });
            }
            Type::Path(path) => &path.path,
            _ => panic!("no report has such a type"),
        };
        let (name, inner) = (name_of(path), type_arguments(path));
        match (name.as_str(), inner.as_slice()) {
            ("Option", [inner]) => nullable(self.schema_of(inner)),
            ("Vec" | "BTreeSet", [items]) => array(items),
            ("Box" | "Arc" | "Rc" | "Cow", [inner]) => self.schema_of(inner),
            ("BTreeMap" | "HashMap" | "Map", [_, values]) => {
                json!({ "type": "object", "additionalProperties": self.schema_of(values) })
            }
            ("u8" | "u16" | "u32" | "u64" | "usize", _) => json!({ "type": "integer", "minimum": 0 }),
            ("i32" | "i64" | "i128", _) => json!({ "type": "integer" }),
            // `Amount`, `Figure` and `Engine` are serialized by hand.
            ("f32" | "f64" | "Amount", _) => json!({ "type": "number" }),
            ("bool", _) => json!({ "type": "boolean" }),
            ("String" | "str" | "Figure" | "Engine", _) => json!({ "type": "string" }),
            ("Value", _) => json!({}),
            (name, _) if self.sentences.iter().any(|fact| fact == name) => json!({ "type": "string" }),
            (name, [inner]) if self.types.contains_key(name) => self.generic(name, &self.schema_of(inner)),
            (name, _) => reference(name),
        }
    }

    /// The definition of a generic type, with `inner` for its parameter.
    fn generic(&self, name: &str, inner: &Value) -> Value {
        let parameter = self.declared(name).generics.type_params().next().unwrap();
        let members =
            |schema: &Value| schema.to_string().strip_prefix('{').unwrap().strip_suffix('}').unwrap().to_owned();
        let parameter = members(&reference(&parameter.ident.to_string()));
        serde_json::from_str(&self.definition(name).to_string().replace(&parameter, &members(inner))).unwrap()
    }
}

impl Key {
    fn required(name: &str, schema: Value) -> Self {
        Self { name: name.to_owned(), schema, is_optional: false }
    }
}
