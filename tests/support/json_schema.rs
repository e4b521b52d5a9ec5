//! Checks a value against a JSON Schema. It knows the keywords of SARIF's schema and of our own and refuses any other, so
//! that nothing passes unread; a validator from a crate took a fifth of the time that the tests need to build.
#![allow(unreachable_pub)] // tests of two programs share it

use serde_json::{Map, Value};

/// Everything that is wrong with `value`, each with its JSON pointer; empty if `schema`, a part of `root`, allows it.
pub fn faults(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Schema { root, faults: &mut faults }.check(schema, value, "");
    faults
}

struct Schema<'a> {
    root: &'a Value,
    faults: &'a mut Vec<String>,
}

impl Schema<'_> {
    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        let rules = match schema {
            Value::Object(rules) => rules,
            Value::Bool(true) => return,
            _ => return self.faults.push(format!("{at}: may not stand here")),
        };
        for (keyword, rule) in rules {
            match keyword.as_str() {
                "$schema" | "$id" | "title" | "description" | "default" | "definitions" | "$defs" => {}
                "$ref" => {
                    let place = rule.as_str().and_then(|place| place.strip_prefix('#')).unwrap();
                    let root = self.root;
                    self.check(root.pointer(place).unwrap(), value, at);
                }
                "anyOf" => self.require(self.fitting(rule, value) > 0, at, keyword, rule),
                "oneOf" => self.require(self.fitting(rule, value) == 1, at, keyword, rule),
                "items" => {
                    let first = rules.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                    for (index, item) in value.as_array().into_iter().flatten().enumerate().skip(first) {
                        self.check(rule, item, &format!("{at}/{index}"));
                    }
                }
                "prefixItems" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    for ((index, item), rule) in items.zip(rule.as_array().unwrap()) {
                        self.check(rule, item, &format!("{at}/{index}"));
                    }
                }
                "properties" | "additionalProperties" => {
                    for (key, member) in value.as_object().into_iter().flatten() {
                        let named = rules.get("properties").and_then(|named| named.get(key));
                        let rule = match keyword.as_str() {
                            "properties" => named,
                            _ => named.is_none().then_some(rule),
                        };
                        if let Some(rule) = rule {
                            self.check(rule, member, &format!("{at}/{key}"));
                        }
                    }
                }
                _ => self.require(holds(keyword, rule, value), at, keyword, rule),
            }
        }
    }

    fn require(&mut self, holds: bool, at: &str, keyword: &str, rule: &Value) {
        if !holds {
            self.faults.push(format!("{at}: {keyword} {rule}"));
        }
    }

    /// How many of `schemas` allow `value`.
    fn fitting(&self, schemas: &Value, value: &Value) -> usize {
        let fits = |schema: &&Value| faults(self.root, schema, value).is_empty();
        schemas.as_array().unwrap().iter().filter(fits).count()
    }
}

/// Whether `value` keeps a rule that looks at nothing inside it. A rule for another type of value is kept.
fn holds(keyword: &str, rule: &Value, value: &Value) -> bool {
    let limit = || rule.as_f64().unwrap();
    match (keyword, value) {
        ("type", _) => match rule {
            Value::Array(kinds) => kinds.iter().any(|kind| is_a(kind.as_str().unwrap(), value)),
            kind => is_a(kind.as_str().unwrap(), value),
        },
        ("const", _) => rule == value,
        ("enum", _) => rule.as_array().unwrap().contains(value),
        ("required", Value::Object(members)) => has_all(members, rule),
        ("minimum", Value::Number(number)) => number.as_f64().unwrap() >= limit(),
        ("maximum", Value::Number(number)) => number.as_f64().unwrap() <= limit(),
        ("minItems", Value::Array(items)) => items.len() as f64 >= limit(),
        ("maxItems", Value::Array(items)) => items.len() as f64 <= limit(),
        ("uniqueItems", Value::Array(items)) => {
            items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))
        }
        ("format", Value::String(text)) => has_format(rule.as_str().unwrap(), text),
        ("required" | "minimum" | "maximum" | "minItems" | "maxItems" | "uniqueItems" | "format", _) => true,
        _ => panic!("{keyword} {rule} is not known here"),
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => panic!("type {kind} is not known here"),
    }
}

fn has_all(members: &Map<String, Value>, required: &Value) -> bool {
    required.as_array().unwrap().iter().all(|key| members.contains_key(key.as_str().unwrap()))
}

/// Only characters that RFC 3986 allows, and a scheme where the reference may not be relative.
fn has_format(format: &str, text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    match format {
        "uri-reference" => text.chars().all(allowed),
        "uri" => text.chars().all(allowed) && text.split_once(':').is_some(),
        _ => panic!("format {format} is not known here"),
    }
}
