//! Advice from calls and lifetimes alone: programs as PyTorch's own recorder shows them, without names.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::made;

const MIB: u64 = 1 << 20;
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch";

/// A frame, the innermost first in a stack.
fn frame(file: &str, line: u64, name: &str) -> Value {
    json!({ "filename": file, "line": line, "name": name })
}

/// A line of the program's `main`, with what it calls before it.
pub(super) fn main_at(line: u64, inner: &[Value]) -> Vec<Value> {
    [inner, &[frame("/app/train.py", line, "main"), frame("/app/train.py", 99, "<module>")]].concat()
}

/// The forward pass of a module that `line` of `main` calls.
pub(super) fn in_model(line: u64, layer: u64) -> Vec<Value> {
    let module = format!("{TORCH}/nn/modules/module.py");
    let inner = [
        frame("/app/model.py", layer, "forward"),
        frame(&module, 1_800, "_call_impl"),
        frame(&module, 1_780, "_wrapped_call_impl"),
    ];
    main_at(line, &inner)
}

/// A program: blocks of 1 MiB granules in one segment.
#[derive(Default)]
pub(super) struct Program {
    trace: Vec<Value>,
    live: BTreeMap<u64, (u64, Vec<Value>)>,
    next: u64,
    reserved: u64,
}

const BASE: u64 = 0x7f00_0000_0000;

impl Program {
    pub(super) fn alloc(&mut self, frames: &[Value], mib: u64) -> u64 {
        let (address, size) = (BASE + self.next, mib * MIB);
        self.next += size;
        self.reserved = self.reserved.max(self.next);
        self.live.insert(address, (size, frames.to_vec()));
        self.entry("alloc", address, size, frames);
        address
    }

    pub(super) fn free(&mut self, address: u64) {
        let (size, frames) = self.live.remove(&address).unwrap();
        self.entry("free_requested", address, size, &frames);
        self.entry("free_completed", address, size, &frames);
    }

    fn entry(&mut self, action: &str, address: u64, size: u64, frames: &[Value]) {
        let time = self.trace.len() as u64;
        self.trace.push(made::entry(action, address, size, time, &json!(frames)));
    }

    /// A request that fails, `mib` too large.
    pub(super) fn fail(&mut self, frames: &[Value], mib: u64) {
        self.entry("oom", 0, mib * MIB, frames);
        let last = self.trace.last_mut().unwrap();
        last["device_free"] = json!(0);
    }

    pub(super) fn snapshot(mut self) -> Value {
        let total = self.reserved;
        let (mut blocks, mut at) = (Vec::new(), BASE);
        for (address, (size, frames)) in &self.live {
            if *address > at {
                blocks.push(made::free(at, address - at));
            }
            blocks.push(made::live(*address, *size, &json!(frames)));
            at = address + size;
        }
        if at < BASE + total {
            blocks.push(made::free(at, BASE + total - at));
        }
        self.trace.insert(0, made::entry("segment_alloc", BASE, total, 0, &json!([])));
        made::snapshot(&[made::segment(0, &blocks)], &[self.trace])
    }

    /// The word of the page, and the first advice.
    fn advice(self) -> (String, String) {
        let answer = made::analyzed(&self.snapshot(), &[]);
        let device = &answer["snapshots"][0]["devices"][0];
        let word = device["conclusion"].as_str().unwrap().to_owned();
        (word, answer["summary"]["action"].as_str().unwrap().to_owned())
    }
}

/// A loop without an optimizer: each pass moves data, calls the model and keeps one result.
fn server(program: &mut Program, requests: u64, keep: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut kept = Vec::new();
    for request in 0..requests {
        let start = program.next;
        let input = program.alloc(&main_at(10, &[]), 2);
        // Lengths differ, so no two requests look alike.
        let hidden = program.alloc(&in_model(12, 20), 4 + request % 5);
        let result = program.alloc(&in_model(12, 21), 20);
        program.free(hidden);
        program.free(input);
        if keep(request) {
            kept.push(result);
        } else {
            program.free(result);
            program.next = start;
        }
    }
    kept
}

#[test]
fn results_that_the_passes_of_a_loop_keep_grow() {
    let mut program = Program::default();
    program.alloc(&main_at(5, &[]), 30);
    server(&mut program, 12, |_| true);
    program.fail(&in_model(12, 20), 64);
    let (word, action) = program.advice();
    assert_eq!(word, "growth", "{action}");
    assert!(action.contains("train.py:12") && action.contains("host memory"), "{action}");
}

#[test]
fn a_bounded_cache_does_not_grow() {
    let mut program = Program::default();
    program.alloc(&main_at(5, &[]), 30);
    let mut cached: Vec<u64> = Vec::new();
    for request in 0..40 {
        cached.extend(server(&mut program, 1, |_| true));
        if cached.len() > 6 {
            program.free(cached.remove(usize::from(request % 2 == 0)));
        }
    }
    program.fail(&in_model(12, 20), 400);
    let (word, action) = program.advice();
    assert!(word != "growth" && !action.contains("host memory"), "{word}: {action}");
}

#[test]
fn a_checkpoint_that_stays_is_loaded_into_host_memory() {
    let mut program = Program::default();
    let load = [frame(&format!("{TORCH}/serialization.py"), 1_500, "load")];
    for _ in 0..10 {
        program.alloc(&main_at(7, &load), 20);
    }
    program.alloc(&main_at(8, &[]), 40);
    program.fail(&in_model(12, 20), 64);
    let (_, action) = program.advice();
    assert!(
        action.starts_with("load the checkpoint into host memory (map_location=\"cpu\") at train.py:7"),
        "{action}"
    );
}

#[test]
fn a_retry_inside_the_handler_keeps_the_failed_call() {
    let mut program = Program::default();
    program.alloc(&main_at(5, &[]), 30);
    program.alloc(&main_at(10, &[]), 2);
    for layer in 20..26 {
        program.alloc(&in_model(12, layer), 30);
    }
    program.fail(&in_model(12, 26), 64);
    program.alloc(&main_at(15, &[]), 1);
    program.fail(&in_model(16, 20), 64);
    let (_, action) = program.advice();
    assert!(action.starts_with("leave the except block"), "{action}");
}

#[test]
fn no_grad_is_not_advised_where_gradients_are_off() {
    let off = frame(&format!("{TORCH}/utils/_contextlib.py"), 120, "decorate_context");
    let of_request = |layer| [in_model(12, layer), vec![off.clone()]].concat();
    let mut program = Program::default();
    program.alloc(&main_at(5, &[]), 30);
    for request in 0..8 {
        let input = program.alloc(&main_at(10, &[]), 2);
        for layer in 20..24 {
            program.alloc(&of_request(layer), 10 + request % 3);
        }
        program.free(input);
    }
    program.fail(&of_request(20), 64);
    let (_, action) = program.advice();
    assert!(!action.contains("no_grad"), "{action}");
}

#[test]
fn only_a_graph_keeps_operands_of_most_operators() {
    let layer = |line| {
        let [linear, module] = ["linear", "module"].map(|name| format!("{TORCH}/nn/modules/{name}.py"));
        main_at(12, &[frame(&linear, line, "forward"), frame(&module, 1_800, "_call_impl")])
    };
    for (every, is_graph) in [(1, true), (3, false)] {
        let mut program = Program::default();
        for _ in 0..8 {
            let input = program.alloc(&main_at(10, &[]), 2);
            let made: Vec<u64> = (0..12).map(|line| program.alloc(&layer(line), 4)).collect();
            made.into_iter().enumerate().filter(|(line, _)| line % every > 0).for_each(|(_, one)| program.free(one));
            program.free(input);
        }
        program.fail(&layer(0), 64);
        let (_, action) = program.advice();
        assert_eq!(!action.contains("host memory"), is_graph, "{action}");
    }
}

#[test]
fn data_that_one_call_made_stays_in_host_memory() {
    let mut program = Program::default();
    program.alloc(&main_at(5, &[]), 500);
    server(&mut program, 8, |_| false);
    program.alloc(&main_at(10, &[]), 2);
    program.alloc(&in_model(12, 20), 8);
    program.alloc(&main_at(13, &[]), 20);
    program.fail(&in_model(12, 21), 20);
    let (_, action) = program.advice();
    assert!(action.starts_with("keep what train.py:5 makes in host memory"), "{action}");
}

#[test]
fn a_program_that_retries_forever_is_warned_about() {
    let described = |failures: usize| {
        let mut program = Program::default();
        program.alloc(&main_at(5, &[]), 30);
        (0..failures).for_each(|_| program.fail(&main_at(6, &[]), 64));
        let snapshot = &made::analyzed(&program.snapshot(), &[])["snapshots"][0];
        let is_warned = snapshot["warnings"].as_array().unwrap().iter().any(|row| row["code"] == "many-ooms");
        (snapshot["devices"][0]["ooms"].as_array().unwrap().len(), is_warned)
    };
    assert_eq!([1000, 1001].map(described), [(1000, false), (1000, true)]);
}
