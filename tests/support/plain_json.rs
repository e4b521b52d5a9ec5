//! What `json.dump` would write of a recording.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use super::{fixtures, pickle_tree::Tree};
use serde_json::{Map, Value, json};

/// Tuples are lists, keys come sorted.
pub fn recording(name: &str) -> Value {
    of_pickle(&fixtures::pickle(name))
}

pub fn of_pickle(pickle: &[u8]) -> Value {
    let canonical = Tree::read(pickle).unwrap().to_json(usize::MAX).unwrap();
    plain(&serde_json::from_str(&canonical).unwrap())
}

fn plain(canonical: &Value) -> Value {
    let Value::Object(wrapper) = canonical else {
        return match canonical {
            Value::Array(items) => items.iter().map(plain).collect(),
            other => other.clone(),
        };
    };
    let (kind, content) = wrapper.iter().next().unwrap();
    match kind.as_str() {
        "tuple" => content.as_array().unwrap().iter().map(plain).collect(),
        "float" => {
            json!(f64::from_bits(u64::from_str_radix(content.as_str().unwrap(), 16).unwrap()))
        }
        "dict" => {
            let pairs = content.as_array().unwrap().iter();
            pairs.map(|pair| (pair[0].as_str().unwrap().to_owned(), plain(&pair[1]))).collect::<Map<_, _>>().into()
        }
        other => panic!("a snapshot with {other}"),
    }
}
