//! Answers against the schemas in `docs/schema`. These allow keys of later releases; here every key has to be described.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Deserializer, Value, json};

use super::json_schema;

/// A file of `docs/schema`, and the JSON pointer to one of its definitions.
type Definition = (&'static Value, String);

/// The definition of each `schema`.
static DEFINITIONS: LazyLock<BTreeMap<String, Definition>> = LazyLock::new(|| {
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema")).unwrap();
    let definitions = files.flat_map(|file| {
        let mut schema = serde_json::from_slice(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
        refuse_other_keys(&mut schema);
        let schema: &'static Value = Box::leak(Box::new(schema));
        list(&schema["anyOf"]).iter().map(move |form| {
            let pointer = &form["$ref"].as_str().unwrap()[1..];
            let name = &schema.pointer(pointer).unwrap()["properties"]["schema"]["const"];
            (name.as_str().unwrap().to_owned(), (schema, pointer.to_owned()))
        })
    });
    definitions.collect()
});

fn refuse_other_keys(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(refuse_other_keys);
            if members.contains_key("required") {
                members.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_other_keys),
        _ => {}
    }
}

/// The names of all schemas.
pub fn names() -> impl Iterator<Item = &'static str> {
    DEFINITIONS.keys().map(String::as_str)
}

/// Everything in `answer` that its schema does not allow.
pub fn faults(answer: &Value) -> Vec<String> {
    let name = answer["schema"].as_str().unwrap_or_else(|| panic!("no schema in {answer}"));
    let (schema, pointer) = DEFINITIONS.get(name).unwrap_or_else(|| panic!("no file has {name}"));
    json_schema::faults(schema, schema.pointer(pointer).unwrap(), answer)
}

/// Fails unless every answer in `printed`, the output of the program with `args`, keeps to its schema.
pub fn check(args: &[&str], printed: &str) {
    if args.windows(2).any(|pair| pair[0] == "--format" && pair[1].starts_with("json")) {
        let answers = Deserializer::from_str(printed).into_iter::<Value>().map_while(Result::ok);
        for answer in answers.filter(|answer| answer.get("schema").is_some()) {
            assert_eq!(faults(&answer), [""; 0], "{args:?}");
        }
    }
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// The sum over all `rows`.
pub fn sum(rows: &Value, key: &str) -> u64 {
    list(rows).iter().map(|row| row[key].as_u64().unwrap()).sum()
}
