//! Which lines of code memory is put down to.

use crate::support::program;
use serde_json::{Value, json};

fn frames(of: &[(&str, u32, &str)]) -> Value {
    let frame = |(file, line, name): &(&str, u32, &str)| json!({"filename": file, "line": line, "name": name});
    of.iter().map(frame).collect()
}

/// The rows of who holds the memory at a snapshot with a block of so many MiB of each stack.
fn rows(blocks: &[(u64, Value)]) -> Vec<Value> {
    let mut address = 0x1000_0000u64;
    let block = |(mib, frames): &(u64, Value)| {
        let size = mib << 20;
        address += size;
        json!({"size": size, "requested_size": size, "address": address - size,
            "state": "active_allocated", "frames": frames})
    };
    let total: u64 = blocks.iter().map(|(mib, _)| mib << 20).sum();
    let blocks: Vec<Value> = blocks.iter().map(block).collect();
    let segment = json!({"device": 0, "address": 0x1000_0000u64, "total_size": total, "stream": 0,
        "segment_type": "large", "blocks": blocks});
    let snapshot = json!({"segments": [segment], "device_traces": []});
    let directory = tempfile::TempDir::new().unwrap();
    let path = program::file(&directory, "lines.json", snapshot.to_string().as_bytes());
    let report = program::analyze(&[&path]);
    report["snapshots"][0]["devices"][0]["top_lines"].as_array().unwrap().clone()
}

fn place(frame: &Value) -> String {
    let file = frame["file"].as_str().unwrap_or_default();
    format!("{file}:{}", frame["line"])
}

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py";
const LLAMA: &str = "/venv/lib/python3.12/site-packages/transformers/models/llama.py";

#[test]
fn a_row_is_of_two_lines() {
    let trainer = |line| {
        frames(&[
            (TORCH, 134, "forward"),
            (LLAMA, line, "forward"),
            ("/venv/lib/python3.12/site-packages/transformers/trainer.py", 9, "train"),
            ("/app/finetune.py", 30, "<module>"),
        ])
    };
    let helper = |line| {
        frames(&[
            ("/app/tools.py", 5, "<listcomp>"),
            ("/app/tools.py", 5, "empty"),
            ("/app/model.py", line, "forward"),
        ])
    };
    let rows =
        rows(&[(2, trainer(1)), (3, trainer(1)), (4, trainer(2)), (7, helper(8)), (20, helper(9))]);
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (row["bytes"].as_u64().unwrap() >> 20, place(&row["frame"]), place(&row["called_from"]))
        })
        .collect();
    let row = |mib, line: &str, from: &str| (mib, line.to_owned(), from.to_owned());
    assert_eq!(
        told,
        [
            row(20, "/app/tools.py:5", "/app/model.py:9"),
            row(7, "/app/tools.py:5", "/app/model.py:8"),
            row(5, &format!("{LLAMA}:1"), "/app/finetune.py:30"),
            row(4, &format!("{LLAMA}:2"), "/app/finetune.py:30"),
        ]
    );
}

#[test]
fn an_operator_is_named_with_its_share() {
    let of = |operator: &str| {
        frames(&[
            ("??", 0, &format!("at::_ops::{operator}::call(at::Tensor)")),
            ("/app/a.py", 1, "<module>"),
        ])
    };
    let rows = rows(&[(2, of("mm")), (3, of("exp")), (2, of("mm")), (1, of("add"))]);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["operation"], &rows[0]["operation_share_ratio"]),
        (&json!("aten::mm"), &json!(0.5))
    );
}

#[test]
fn a_backward_pass_is_named_by_its_nodes() {
    let engine = |node: &str| {
        frames(&[
            ("??", 0, "torch::unwind::unwind()"),
            (
                "RegisterCUDA.cpp",
                0,
                "at::(anonymous namespace)::wrapper_CUDA_bmm(at::Tensor const&)",
            ),
            (
                "??",
                0,
                &format!("torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)"),
            ),
            ("", 0, "torch::autograd::Node::operator()(std::vector<at::Tensor>&&)"),
            ("engine.cpp", 0, "torch::autograd::Engine::thread_main()"),
            ("thread48.o", 0, "execute_native_thread_routine"),
            ("./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", 78, "clone3"),
        ])
    };
    let rows = rows(&[
        (2, engine("BmmBackward0")),
        (5, engine("BmmBackward0")),
        (3, engine("DivBackward0")),
    ]);
    let told: Vec<_> =
        rows.iter().map(|row| (&row["frame"], row["backward"].as_str().unwrap())).collect();
    assert_eq!(told, [(&Value::Null, "BmmBackward0"), (&Value::Null, "DivBackward0")]);
}

#[test]
fn paths_of_windows_are_told_apart() {
    let site = r"C:\research\FL\.venv\Lib\site-packages";
    let rows = rows(&[(
        1,
        frames(&[
            (&format!(r"{site}\torch\nn\modules\module.py"), 1357, "convert"),
            (r"C:\uv\cpython-3.10.19-windows-x86_64-none\lib\copy.py", 153, "deepcopy"),
            (&format!(r"{site}\transformers\modeling_utils.py"), 4343, "to"),
            (r"C:\research\FL\client.py", 176, "reset_model"),
        ]),
    )]);
    assert_eq!(rows[0]["frame"]["name"], "to");
    assert_eq!(rows[0]["called_from"]["name"], "reset_model");
    assert_eq!(rows[0]["operation"], "torch/nn/modules/module.py:1357 convert");
}
