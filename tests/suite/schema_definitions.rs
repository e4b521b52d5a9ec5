//! The serialized types as definitions of a JSON Schema: flattened keys, aliases and type parameters are resolved.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::schema_types::{Key, Shape, Types, words_schema};
use serde_json::{Value, json};

/// All other ratios are shares.
const UNBOUNDED_RATIOS: [&str; 3] = ["allocated_error_ratio", "max_creep_ratio", "reserved_error_ratio"];

impl Types {
    /// The name of the type with each `schema`.
    pub(crate) fn roots(&self) -> BTreeMap<&str, &str> {
        let keys = self.shapes.iter().flat_map(|(name, shape)| shape.keys.iter().map(move |key| (key, name.as_str())));
        keys.filter_map(|(key, name)| Some((key.schema.get("const")?.as_str()?, name))).collect()
    }

    /// The definitions of `roots` and of every type in them, by name.
    pub(crate) fn definitions(&self, roots: &[&str]) -> BTreeMap<String, Value> {
        let mut definitions = BTreeMap::new();
        let mut open: Vec<String> = roots.iter().map(|&root| root.to_owned()).collect();
        while let Some(name) = open.pop() {
            if let Entry::Vacant(place) = definitions.entry(name) {
                let mut definition = self.definition(place.key());
                self.resolve(&mut definition, &mut open);
                place.insert(definition);
            }
        }
        definitions
    }

    fn shape(&self, name: &str) -> &Shape {
        self.shapes.get(name).unwrap_or_else(|| panic!("{name} is not a serialized type"))
    }

    /// The schema of the type `name`, with references that are not resolved.
    fn definition(&self, name: &str) -> Value {
        let shape = self.shape(name);
        let mut keys = self.keys(shape);
        if let Some(promised) = &shape.promised {
            for key in promised {
                assert!(keys.iter().any(|other| other.name == *key), "{name} has no key {key}");
            }
            keys.retain(|key| promised.contains(&key.name));
            keys.push(details());
        }
        let mut schema = if !keys.is_empty() {
            let required: Vec<&str> = keys.iter().filter(|key| !key.is_optional).map(|key| key.name.as_str()).collect();
            let properties: BTreeMap<&str, &Value> = keys.iter().map(|key| (key.name.as_str(), &key.schema)).collect();
            json!({ "type": "object", "required": required, "properties": properties })
        } else if let Some(values) = &shape.values {
            match values.as_slice() {
                [] => json!({ "type": "object" }),
                values => json!({ "type": "object", "additionalProperties": { "anyOf": values } }),
            }
        } else if shape.variants.is_empty() {
            words_schema(&shape.words)
        } else {
            json!({ "anyOf": shape.variants })
        };
        schema["description"] = json!(shape.doc);
        schema
    }

    /// The keys of `shape` with their descriptions, and those of the types that it flattens in the place of these.
    fn keys(&self, shape: &Shape) -> Vec<Key> {
        let keys = shape.keys.iter().flat_map(|key| {
            if key.is_flattened {
                return self.flattened(&key.schema);
            }
            let mut key = key.clone();
            if !key.schema.as_object().unwrap().contains_key("const") {
                key.schema["description"] = json!(self.description(&key));
                if key.name.ends_with("_ratio") && !UNBOUNDED_RATIOS.contains(&key.name.as_str()) {
                    key.schema["minimum"] = json!(0);
                    key.schema["maximum"] = json!(1);
                }
            }
            vec![key]
        });
        keys.collect()
    }

    /// The keys of the type of a flattened field. Those that only some variants have are optional.
    fn flattened(&self, schema: &Value) -> Vec<Key> {
        let schema = match schema.pointer("/anyOf/0") {
            Some(nullable) => nullable,
            None => schema,
        };
        let shape = self.shape(schema["$ref"].as_str().unwrap());
        let mut keys = self.keys(shape);
        if let Some(parameter) = &shape.parameter {
            keys.iter_mut().for_each(|key| substitute(&mut key.schema, parameter, &schema["of"]));
        }
        let variants: Vec<Vec<Key>> = shape.variants.iter().map(|variant| self.flattened(variant)).collect();
        for key in variants.iter().flatten() {
            let has_key = |keys: &Vec<Key>| keys.iter().any(|other| other.name == key.name && !other.is_optional);
            if !keys.iter().any(|other| other.name == key.name) {
                keys.push(Key { is_optional: !variants.iter().all(has_key), ..key.clone() });
            }
        }
        keys
    }

    /// The comment of `key`, or of the key that it refers to. Readers of JSON know null and absent keys, and no `None`.
    fn description(&self, key: &Key) -> String {
        assert!(!key.doc.is_empty() && !key.doc.contains("`None`"), "the comment of {}: {:?}", key.name, key.doc);
        let referred = key.doc.strip_prefix("See `").and_then(|doc| doc.trim_end_matches("`.").split_once("::"));
        let Some((ty, name)) = referred else { return key.doc.clone() };
        self.shape(ty).keys.iter().find(|key| key.name == name).unwrap().doc.clone()
    }

    /// Puts aliases and generic types in the place of their names; the other names are added to `named`.
    fn resolve(&self, schema: &mut Value, named: &mut Vec<String>) {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str).map(str::to_owned) {
            if let Some(alias) = self.aliases.get(&name).filter(|_| !self.shapes.contains_key(&name)) {
                replace_reference(schema, alias);
            } else if let Some(parameter) = &self.shape(&name).parameter {
                let mut definition = self.definition(&name);
                substitute(&mut definition, parameter, &schema["of"]);
                replace_reference(schema, &definition);
            } else {
                schema["$ref"] = json!(format!("#/$defs/{name}"));
                return named.push(name);
            }
        }
        match schema {
            Value::Object(members) => members.values_mut().for_each(|member| self.resolve(member, named)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.resolve(item, named)),
            _ => {}
        }
    }
}

/// The key of all that is not promised.
fn details() -> Key {
    let doc =
        "More about it, for people who look closer. These keys are not promised: they may change with any release.";
    let schema = json!({ "type": "object", "description": doc });
    Key { name: "details".to_owned(), doc: doc.to_owned(), schema, is_optional: false, is_flattened: false }
}

/// Puts `inner` in the place of the type parameter `parameter`.
fn substitute(schema: &mut Value, parameter: &str, inner: &Value) {
    if schema.get("$ref").is_some_and(|name| name == parameter) {
        return replace_reference(schema, inner);
    }
    match schema {
        Value::Object(members) => members.values_mut().for_each(|member| substitute(member, parameter, inner)),
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, parameter, inner)),
        _ => {}
    }
}

/// Puts `schema` in the place of a reference to it; the reference's own description stays.
fn replace_reference(reference: &mut Value, schema: &Value) {
    let mut replaced = schema.clone();
    if let Some(description) = reference.get("description") {
        replaced["description"] = description.clone();
    }
    *reference = replaced;
}
