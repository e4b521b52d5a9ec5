//! Which lines of code memory is put down to.

use crate::support::made::{self, frames};
use crate::support::program;
use serde_json::{Value, json};

/// The rows of who holds the memory at a snapshot with a block of so many MiB of each stack.
fn rows(blocks: &[(u64, Value)]) -> Vec<Value> {
    let mut address = 0x1000_0000u64;
    let block = |(mib, frames): &(u64, Value)| {
        address += mib << 20;
        made::live(address - (mib << 20), mib << 20, frames)
    };
    let blocks: Vec<Value> = blocks.iter().map(block).collect();
    let report = made::analyzed(&made::snapshot(&[made::segment(0, &blocks)], &[]), &[]);
    report["snapshots"][0]["devices"][0]["top_lines"].as_array().unwrap().clone()
}

fn place(frame: &Value) -> String {
    let file = frame["file"].as_str().unwrap_or_default();
    format!("{file}:{}", frame["line"])
}

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py";
const LLAMA: &str = "/venv/lib/python3.12/site-packages/transformers/models/llama.py";

#[test]
fn a_row_has_two_lines() {
    let trainer = |line| {
        frames(&[
            (TORCH, 134, "forward"),
            (LLAMA, line, "forward"),
            ("/venv/lib/python3.12/site-packages/transformers/trainer.py", 9, "train"),
            ("/app/finetune.py", 30, "<module>"),
        ])
    };
    let helper = |line| {
        frames(&[("/app/tools.py", 5, "<listcomp>"), ("/app/tools.py", 5, "empty"), ("/app/model.py", line, "forward")])
    };
    let rows = rows(&[(2, trainer(1)), (3, trainer(1)), (4, trainer(2)), (7, helper(8)), (20, helper(9))]);
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row["bytes"].as_u64().unwrap() >> 20, place(&row["frame"]), place(&row["called_from"])))
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
        frames(&[("??", 0, &format!("at::_ops::{operator}::call(at::Tensor)")), ("/app/a.py", 1, "<module>")])
    };
    let rows = rows(&[(2, of("mm")), (3, of("exp")), (2, of("mm")), (1, of("add"))]);
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["operation"], &rows[0]["operation_share_ratio"]), (&json!("aten::mm"), &json!(0.5)));
}

#[test]
fn a_backward_pass_is_named_by_its_nodes() {
    let engine = |node: &str| {
        frames(&[
            ("??", 0, "torch::unwind::unwind()"),
            ("RegisterCUDA.cpp", 0, "at::(anonymous namespace)::wrapper_CUDA_bmm(at::Tensor const&)"),
            ("??", 0, &format!("torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)")),
            ("", 0, "torch::autograd::Node::operator()(std::vector<at::Tensor>&&)"),
            ("engine.cpp", 0, "torch::autograd::Engine::thread_main()"),
            ("thread48.o", 0, "execute_native_thread_routine"),
            ("./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", 78, "clone3"),
        ])
    };
    let rows = rows(&[(2, engine("BmmBackward0")), (5, engine("BmmBackward0")), (3, engine("DivBackward0"))]);
    let told: Vec<_> = rows.iter().map(|row| (&row["frame"], row["backward"].as_str().unwrap())).collect();
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
    assert_eq!(rows[0]["frame"]["name"], "reset_model");
    assert_eq!(rows[0]["operation"], "torch/nn/modules/module.py:1357 convert");
}

/// `einops` is the same line for every layer of the user's model; the lines of the model lead. A trainer is called from
/// one line, which is the same for all memory; its lines lead.
#[test]
fn the_users_line_leads_where_a_package_helps() {
    let site = "/venv/lib/python3.12/site-packages";
    let call = format!("{site}/torch/nn/modules/module.py");
    let einsum = |line| {
        frames(&[
            (&format!("{site}/einops/_backends.py"), 288, "einsum"),
            (&format!("{site}/einops/einops.py"), 907, "einsum"),
            ("/app/model.py", line, "forward"),
            (&call, 1750, "_call_impl"),
            ("/app/train.py", 9, "main"),
        ])
    };
    let rows_of_model = rows(&[(5, einsum(18)), (3, einsum(40))]);
    let leading: Vec<_> =
        rows_of_model.iter().map(|row| (&row["frame"]["line"], &row["called_from"]["line"])).collect();
    assert_eq!(leading, [(&json!(18), &json!(9)), (&json!(40), &json!(9))]);
    let trainer = |line| {
        frames(&[
            (&format!("{site}/transformers/models/opt.py"), line, "forward"),
            (&call, 1750, "_call_impl"),
            (&format!("{site}/transformers/trainer.py"), 2500, "train"),
            ("/app/train.py", 9, "main"),
        ])
    };
    let rows_of_trainer = rows(&[(5, trainer(100)), (3, trainer(200))]);
    let leading: Vec<_> =
        rows_of_trainer.iter().map(|row| (&row["frame"]["line"], &row["called_from"]["line"])).collect();
    assert_eq!(leading, [(&json!(100), &json!(9)), (&json!(200), &json!(9))]);
}

/// If all frames are packages', the program is the package of the outermost frame, a launcher aside.
#[test]
fn an_installed_program_is_the_users_code() {
    let site = "/venv/lib/python3.12/site-packages";
    let rows = rows(&[(
        1,
        frames(&[
            (&format!("{site}/einops/_backends.py"), 288, "einsum"),
            (&format!("{site}/finetune/model.py"), 30, "forward"),
            (&format!("{site}/finetune/cli.py"), 7, "main"),
            (&format!("{site}/click/core.py"), 1161, "invoke"),
        ]),
    )]);
    assert_eq!(rows[0]["frame"]["line"], 30);
    assert_eq!(rows[0]["called_from"]["line"], 7);
}

/// The rows of who holds the memory at the snapshot of a recording in `fixtures/lines`.
fn recorded(name: &str) -> Vec<Value> {
    let report = program::analyze(&[&format!("fixtures/lines/2.15.0-{name}.pickle.gz")]);
    report["snapshots"][0]["devices"][0]["top_lines"].as_array().unwrap().clone()
}

/// The line that called it, `loss.backward()`, and where that was called from.
const BACKWARD: [&str; 2] = ["/app/lines.py:33", "/app/lines.py:39"];

#[test]
fn a_backward_pass_is_put_down_to_the_line_that_called_it() {
    let rows = recorded("nodes");
    let row = rows.iter().find(|row| row["backward"] == "AddmmBackward0").unwrap();
    assert_eq!([place(&row["frame"]), place(&row["called_from"])], BACKWARD);
    assert_eq!(row["has_stack"], true);
    assert!(rows.iter().all(|row| !row["frame"].is_null()), "{rows:#?}");
    let page = program::result_of(&["analyze", "fixtures/lines/2.15.0-nodes.pickle.gz"]);
    assert!(page.contains("AddmmBackward0 from lines.py:33 step"), "{page}");
}

/// Its thread has no stack, but the one that waits for it has.
#[test]
fn so_is_a_failure_of_one() {
    let path = "fixtures/lines/2.15.0-oom_backward.pickle.gz";
    let report = program::analyze(&[path]);
    let failed = &report["snapshots"][0]["devices"][0]["ooms"][0];
    assert_eq!(place(&failed["culprit"]), "/app/workloads2.py:1270");
    assert_eq!(failed["culprit"]["name"], "oom_backward");
    assert_eq!((&failed["backward"], &failed["has_stack"]), (&json!("unknown"), &json!(false)));
    let page = program::result_of(&["analyze", path]);
    assert!(page.contains("backward of app/workloads2.py:1270 oom_backward requested"), "{page}");
}

/// Each device has a thread of autograd's, but a backward pass is called on one: the clock tells which goes on. After
/// the caller has gone on to other work, a thread without a stack is nobody's.
#[test]
fn so_is_what_it_does_on_other_devices() {
    const AUTOGRAD: &str = "/venv/lib/python3.12/site-packages/torch/autograd/__init__.py";
    let call = frames(&[
        (AUTOGRAD, 100, "_make_grads"),
        (AUTOGRAD, 300, "backward"),
        ("/app/train.py", 7, "step"),
        ("/app/train.py", 9, "<module>"),
    ]);
    let step = frames(&[("/app/train.py", 8, "step"), ("/app/train.py", 9, "<module>")]);
    let bare = frames(&[]);
    let size = 2 << 20;
    let alloc = |at: u64, stack: &Value| made::entry("alloc", at << 21, size, at, stack);
    let traces = [
        vec![alloc(20, &call), alloc(22, &bare), alloc(30, &step)],
        vec![alloc(11, &bare), alloc(25, &bare), alloc(35, &bare)],
    ];
    let segments = [(0, 20, &call), (0, 22, &bare), (0, 30, &step), (1, 11, &bare), (1, 25, &bare), (1, 35, &bare)];
    let segments = segments.map(|(device, at, stack)| made::segment(device, &[made::live(at << 21, size, stack)]));
    let report = made::analyzed(&made::snapshot(&segments, &traces), &[]);
    let rows = report["snapshots"][0]["devices"][1]["top_lines"].as_array().unwrap();
    let told = |row: &Value| (row["bytes"].as_u64().unwrap() >> 20, place(&row["frame"]));
    let mut told: Vec<_> = rows.iter().map(told).collect();
    told.sort();
    assert_eq!(told, [(2, "/app/train.py:7".to_owned()), (4, ":null".to_owned())]);
}

#[test]
fn anomaly_mode_shows_the_line_of_the_forward_pass() {
    let rows = recorded("anomaly");
    let of_backward: Vec<&Value> = rows.iter().filter(|row| row["backward"] == "unknown").collect();
    let mut forward: Vec<String> = of_backward.iter().map(|row| place(&row["forward"])).collect();
    forward.sort();
    assert_eq!(forward, ["/app/lines.py:24", "/app/lines.py:25"]);
    for row in of_backward {
        assert_eq!([place(&row["frame"]), place(&row["called_from"])], BACKWARD);
    }
}

#[test]
fn compiled_code_is_put_down_to_its_source() {
    let rows = recorded("compiled");
    let source: Vec<&Value> = rows.iter().filter(|row| row["frame"]["name"] == "forward").collect();
    assert!(source.len() >= 2, "{rows:#?}");
    assert!(rows.iter().all(|row| row["frame"]["file"] == "/app/lines.py"), "{rows:#?}");
    let region = "Torch-Compiled Region: 0/0";
    assert!(rows.iter().any(|row| row["compile_context"] == region), "{rows:#?}");
    let page = program::result_of(&["analyze", "--full", "fixtures/lines/2.15.0-compiled.pickle.gz"]);
    assert!(page.contains("in compiled region 0/0"), "{page}");
}

/// A recording of frees alone, or one that began late, may have stacks in its blocks only.
#[test]
fn stacks_of_blocks_are_stacks() {
    let frames = frames(&[("/app/a.py", 1, "<module>")]);
    let entry = json!({"action": "snapshot", "addr": 0, "size": 0, "stream": 0});
    let of = |frames: Value| {
        let segment = made::segment(0, &[made::live(4096, 512, &frames)]);
        let report = made::analyzed(&made::snapshot(&[segment], &[vec![entry.clone()]]), &[]);
        let warnings = report["snapshots"][0]["warnings"].as_array().unwrap().clone();
        warnings.iter().any(|warning| warning["code"] == "no-stacks")
    };
    assert!(!of(frames));
    assert!(of(json!([])));
}
