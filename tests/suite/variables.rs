//! The variables that keep memory, as the recorder named them: rows, folded indexes, containers, and files that lie.

use std::io::Read as _;

use flate2::Compression;
use flate2::read::ZlibEncoder;
use serde_json::{Value, json};

use crate::support::made;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7000_0000_0000;

/// A snapshot with blocks of 1 MiB, the n-th with the name that row n of `tensors` gives it.
fn snapshot(blocks: u64, names: Value) -> Value {
    let frames = made::frames(&[("/app/train.py", 7, "step")]);
    let blocks: Vec<Value> = (0..blocks).map(|index| made::live(BASE + index * MIB, MIB, &frames)).collect();
    let text = "\n".repeat(11) + "def keep(self, x):\n    self.history.append(x)\n";
    let mut bytes = Vec::new();
    ZlibEncoder::new(text.as_bytes(), Compression::default()).read_to_end(&mut bytes).unwrap();
    let text: String = bytes.into_iter().map(char::from).collect();
    let program = json!({ "complete": true, "files": { "/app/train.py": text } });
    json!({ "segments": [made::segment(0, &blocks)], "device_traces": [[]],
            "oomscope": { "recorder": 1, "names": names, "program": program } })
}

fn names(tensors: Value) -> Value {
    json!({
        "version": 1, "complete": true, "omitted": 0, "ms": 5,
        "kinds": ["parameter", "buffer", "gradient", "optimizer state", "saved", "variable"],
        "texts": [null, "trainer.history[0]", "trainer.history[1]", "MulBackward0.other", "float32", "trainer.history",
                  "list", "Node", "model.blocks[0].weight"],
        "shapes": [[512, 512], [262_144]],
        "roots": [
            { "kind": "frame", "author": "user", "frames": [{ "filename": "/app/train.py", "line": 20, "name": "main" }] },
            { "kind": "cycle", "author": "user" },
            { "kind": "call", "author": "user" },
            { "kind": "call", "author": "user" },
            { "kind": "module", "author": "user", "module": "__main__" },
        ],
        "containers": [[5, 6, 259]],
        "tensors": tensors,
        "locals": { "frames": [{ "filename": "/app/train.py", "line": 9, "name": "step" }],
                    "tensors": [["a", "float32", [200, 64]]] },
    })
}

/// address, bytes, kind, name, root, operator, whether in a graph, dtype, shape.
fn row(block: u64, rest: [u64; 7]) -> Value {
    let [kind, name, root, operator, graph, dtype, shape] = rest;
    json!([BASE + block * MIB, MIB, kind, name, root, operator, graph, dtype, shape])
}

fn kept_by(snapshot: &Value) -> (Value, Value) {
    let result = made::analyzed(snapshot, &[]);
    (result["snapshots"][0]["devices"][0]["kept_by"].clone(), result["summary"]["variable"].clone())
}

#[test]
fn items_of_a_list_share_a_row_with_its_length() {
    let tensors = json!([
        row(0, [4, 1, 0, 3, 1, 4, 0]),
        row(1, [4, 2, 0, 3, 1, 4, 1]),
        row(2, [5, 1, 0, 0, 0, 4, 0]),
        row(3, [0, 8, 4, 0, 0, 4, 0])
    ]);
    let (kept, variable) = kept_by(&snapshot(5, names(tensors)));
    let rows = kept["rows"].as_array().unwrap();
    assert_eq!(kept["complete"], true);
    let history = &rows[0];
    assert_eq!(history["name"], "trainer.history[*]");
    assert_eq!((&history["bytes"], &history["blocks"]), (&json!(3 * MIB), &json!(3)));
    assert_eq!(history["graph_bytes"], 2 * MIB);
    assert_eq!(history["kind"], "saved");
    let container = &history["container"];
    assert_eq!(
        (&container["name"], &container["type"], &container["items"]),
        (&json!("trainer.history"), &json!("list"), &json!(259))
    );
    assert_eq!((&container["filled_at"]["name"], &container["filled_at"]["line"]), (&json!("keep"), &json!(13)));
    assert_eq!(history["function"]["name"], "main");
    assert_eq!((&history["dtype"], &history["shape"]), (&json!("float32"), &json!([512, 512])));
    assert_eq!(history["operator"], "MulBackward0.other");
    assert_eq!(history["allocated_by"]["frame"]["line"], 7);
    let weight = rows.iter().find(|row| row["name"] == "model.blocks[*].weight").unwrap();
    assert_eq!(
        (&weight["kind"], &weight["module"], &weight["root"]),
        (&json!("parameter"), &json!("__main__"), &json!("module"))
    );
    let unnamed = rows.iter().find(|row| row["root"].is_null()).unwrap();
    assert_eq!((&unnamed["name"], &unnamed["bytes"]), (&Value::Null, &json!(MIB)));
    assert!(
        variable
            .as_str()
            .unwrap()
            .starts_with("`trainer.history`, a list of 259 filled at train.py:13: 3 MiB of 5 MiB"),
        "{variable}"
    );
}

#[test]
fn all_entries_of_a_dict_are_one_holder() {
    let mut names = names(json!([]));
    let texts = names["texts"].as_array_mut().unwrap();
    let first = texts.len() as u64;
    texts.extend([json!("cache"), json!("dict")]);
    texts.extend((0..300).map(|key| json!(format!("cache['user{key}']"))));
    names["containers"] = json!([[first, first + 1, 300]]);
    names["tensors"] = (0..300).map(|index| row(index, [5, first + 2 + index, 0, 0, 0, 4, 0])).collect();
    let device = device(&failed(300, names, MIB));
    let holder = &device["ooms"][0]["held"]["by_variable"][0];
    assert_eq!((&holder["bytes"], &holder["blocks"]), (&json!(300 * MIB), &json!(300)), "{holder}");
}

#[test]
fn memory_without_a_variable_has_a_reason() {
    let tensors = json!([
        row(0, [5, 7, 1, 0, 0, 4, 0]),
        row(1, [5, 7, 1, 0, 0, 4, 0]),
        // Two roots that are alike share a row.
        row(2, [5, 0, 2, 0, 0, 4, 0]),
        row(3, [5, 0, 3, 0, 0, 4, 0])
    ]);
    let (kept, variable) = kept_by(&snapshot(4, names(tensors)));
    let rows = kept["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{kept}");
    let cycle = rows.iter().find(|row| row["root"] == "cycle").unwrap();
    assert_eq!((&cycle["name"], &cycle["blocks"]), (&json!("Node"), &json!(2)));
    let call = rows.iter().find(|row| row["root"] == "call").unwrap();
    assert_eq!((&call["name"], &call["blocks"]), (&Value::Null, &json!(2)));
    assert!(variable.is_null() || variable.as_str().unwrap().starts_with("a reference cycle of Node"), "{variable}");
}

#[test]
fn tensors_that_share_a_block_are_counted() {
    let mut shared = row(0, [4, 1, 0, 0, 0, 4, 0]);
    shared.as_array_mut().unwrap().push(json!(12));
    let (kept, _) = kept_by(&snapshot(1, names(json!([shared]))));
    assert_eq!(kept["rows"][0]["places"], 12);
    let (kept, _) = kept_by(&snapshot(1, names(json!([row(0, [4, 1, 0, 0, 0, 4, 0])]))));
    assert!(kept["rows"][0]["places"].is_null());
}

/// The same with a trace: the blocks are allocated by a line of no known purpose, then a request of `bytes` fails.
fn failed(blocks: u64, names: Value, bytes: u64) -> Value {
    let mut snapshot = snapshot(blocks, names);
    let frames = made::frames(&[("/app/train.py", 7, "step")]);
    let entry = |action: &str, address: u64, size: u64| made::entry(action, address, size, 1, &frames);
    let mut trace = vec![entry("segment_alloc", BASE, blocks * MIB)];
    trace.extend((0..blocks).map(|index| entry("alloc", BASE + index * MIB, MIB)));
    let mut oom = entry("oom", 0, bytes);
    oom["device_free"] = json!(MIB);
    trace.push(oom);
    snapshot["device_traces"] = json!([trace]);
    snapshot["oomscope"]["oom"] = json!({ "device": 0, "request_bytes": bytes, "device_free_bytes": MIB });
    snapshot
}

fn device(snapshot: &Value) -> Value {
    made::analyzed(snapshot, &[])["snapshots"][0]["devices"][0].clone()
}

/// Copies in host memory would leave the pool of the graph as it is.
#[test]
fn free_memory_of_a_graph_leads_before_the_list_that_keeps_its_results() {
    let tensors: Vec<Value> = (0..6).map(|block| row(block, [5, 1, 0, 0, 0, 4, 0])).collect();
    let mut snapshot = failed(6, names(json!(tensors)), 5 * MIB);
    assert!(action(&snapshot).contains("into `trainer.history`"), "{}", action(&snapshot));
    let mut pool = made::segment(0, &[made::free(BASE + 64 * MIB, 32 * MIB)]);
    pool["segment_pool_id"] = json!([1, 0]);
    snapshot["segments"].as_array_mut().unwrap().push(pool);
    assert!(action(&snapshot).starts_with("Let CUDA graphs share one pool"), "{}", action(&snapshot));
}

fn action(snapshot: &Value) -> String {
    made::analyzed(snapshot, &[])["summary"]["action"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn categories_of_named_blocks_are_known() {
    // Parameter, gradient, optimizer state, saved.
    let kinds = [0, 2, 3, 4].into_iter().enumerate();
    let tensors: Vec<Value> = kinds.map(|(block, kind)| row(block as u64, [kind, 1, 0, 0, 0, 4, 0])).collect();
    let device = device(&failed(5, names(json!(tensors)), 160_000_000_000));
    let categories = device["ooms"][0]["held"]["by_category"].as_array().unwrap();
    for word in ["parameters", "gradients", "optimizer-state", "activations"] {
        let found = categories.iter().find(|row| row["category"] == word);
        let found = found.unwrap_or_else(|| panic!("{word}: {categories:?}"));
        assert_eq!(
            (&found["bytes"], &found["high_bytes"], &found["confidence"]),
            (&json!(MIB), &json!(MIB), &json!("known")),
            "{word}"
        );
    }
}

#[test]
fn memory_of_cpp_has_the_line_that_called_it() {
    // The stack of the failed request made the blocks.
    let found = device(&failed(2, names(json!([])), 160_000_000_000));
    let rows = found["kept_by"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["root"], &rows[0]["blocks"]), (1, &json!("call"), &json!(2)));
    // Without a failure no call runs.
    let (kept, variable) = kept_by(&snapshot(2, names(json!([]))));
    assert_eq!(variable, "C++ code, called at app/train.py:7 in step: 2 MiB of 2 MiB allocated");
    let row = &kept["rows"][0];
    assert_eq!(
        (&row["root"], &row["function"]["name"], &row["function"]["line"]),
        (&Value::Null, &json!("step"), &json!(7))
    );
    let mut reducer = snapshot(2, names(json!([])));
    for block in reducer["segments"][0]["blocks"].as_array_mut().unwrap() {
        block["frames"][0]["filename"] = json!("/venv/torch/nn/parallel/distributed.py");
        block["frames"][0]["name"] = json!("_ddp_init_helper");
    }
    let (_, variable) = kept_by(&reducer);
    let expected = "the reducer of DistributedDataParallel (C++), buckets of gradients: 2 MiB of 2 MiB allocated";
    assert_eq!(variable, expected);
}

#[test]
fn the_request_has_the_size_of_a_product_of_local_tensors() {
    let found = device(&failed(1, names(json!([])), 160_000_000_000));
    let locals = &found["local_tensors"];
    assert_eq!(locals["function"]["line"], 9);
    assert_eq!(locals["tensors"], json!([{ "name": "a", "dtype": "float32", "shape": [200, 64] }]));
    assert!(locals["request"].is_null(), "{locals}");
    let mut large = names(json!([]));
    large["locals"]["tensors"] = json!([["a", "float32", [200_000, 64]]]);
    let found = device(&failed(1, large, 160_000_000_000));
    let request = &found["local_tensors"]["request"];
    assert_eq!((&request["shape"], &request["like"]), (&json!([200_000, 200_000]), &json!("a")));
    // Without a failure here there is no such line.
    assert!(device(&snapshot(1, names(json!([]))))["local_tensors"].is_null());
}

#[test]
fn rows_that_refer_to_nothing_are_left_out() {
    let huge = u64::MAX;
    let bad = json!([
        row(0, [9, 1, 0, 0, 0, 4, 0]),
        row(0, [4, 1, 99, 0, 0, 4, 0]),
        row(0, [4, 1, 0, 0, 0, 99, 0]),
        row(0, [huge, huge, huge, huge, huge, huge, huge]),
        [1, 2, 3],
        "text",
        null,
        { "address": 1 }
    ]);
    let (kept, _) = kept_by(&snapshot(1, names(bad)));
    let rows = kept["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{kept}");
    assert_eq!((&rows[0]["root"], &rows[0]["blocks"]), (&Value::Null, &json!(1)));
    // A name or an operator that does not exist, or no shape, costs nothing but itself.
    let (kept, _) = kept_by(&snapshot(1, names(json!([row(0, [4, huge, 0, huge, 0, 4, huge])]))));
    assert_eq!((&kept["rows"][0]["root"], &kept["rows"][0]["shape"]), (&json!("frame"), &Value::Null));
}

#[test]
fn other_values_in_place_of_names_are_no_names() {
    for other in
        [json!(null), json!([]), json!("names"), json!({}), json!({ "tensors": 7 }), json!({ "tensors": null })]
    {
        let (kept, variable) = kept_by(&snapshot(1, other.clone()));
        assert!(kept.is_null() || kept["rows"][0]["name"].is_null(), "{other}: {kept}");
        assert!(variable.is_null());
    }
}

#[test]
fn a_block_that_the_recorder_did_not_reach_has_a_row_with_its_line() {
    let mut incomplete = names(json!([row(0, [0, 8, 4, 0, 0, 4, 0])]));
    incomplete["complete"] = json!(false);
    incomplete["roots"][3] = json!({ "kind": "unreached", "author": "user" });
    incomplete["tensors"].as_array_mut().unwrap().push(row(1, [5, 0, 3, 0, 0, 4, 0]));
    let mut snapshot = snapshot(6, incomplete);
    for index in 3..6 {
        snapshot["segments"][0]["blocks"][index]["frames"][0]["name"] = json!("embed");
    }
    let (kept, _) = kept_by(&snapshot);
    let rows: Vec<_> = kept["rows"].as_array().unwrap().iter().map(|row| (&row["root"], &row["blocks"])).collect();
    let (unreached, module) = (json!("unreached"), json!("module"));
    assert_eq!(rows, [(&unreached, &json!(3)), (&unreached, &json!(2)), (&module, &json!(1))], "{kept}");
    assert_eq!(kept["rows"][0]["allocated_by"]["frame"]["name"], "embed", "{kept}");
}
