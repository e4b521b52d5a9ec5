//! The functions that the page's workers call. For a page, in this order: for each file `reserve_name`,
//! `reserve_content`, then, once both are filled in, `add_file`; last `write_page`, whose result is at `result_pointer`.
//! For replays of one device of a file: `reserve_name` and `reserve_content` of the file, `open_replay`; then, for each
//! request, `reserve_name` and `answer`.
//!
//! Buffers are passed as positions in the module's memory. A name or a size is all that a page chooses; no function
//! here trusts more than that.

#![allow(unsafe_code, reason = "the names of exported functions; no block here is unsafe")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{DroppedFiles, Replayer};
use crate::base::input::Source;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};

#[link(wasm_import_module = "page")]
unsafe extern "C" {
    /// Reports `read` of `total` bytes of the current file.
    safe fn show_progress(read: f64, total: f64);
}

#[derive(Default)]
struct State {
    name: Vec<u8>,
    content: Vec<u8>,
    files: Option<DroppedFiles>,
    replayer: Option<Replayer<'static, 'static>>,
    result: Vec<u8>,
}

static STATE: Mutex<State> =
    Mutex::new(State { name: Vec::new(), content: Vec::new(), files: None, replayer: None, result: Vec::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Space for a file's name: `length` bytes of UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn reserve_name(length: usize) -> *mut u8 {
    let mut state = state();
    state.name = vec![0; length];
    state.name.as_mut_ptr()
}

/// Space for a file's content, or null if there is not as much memory.
#[unsafe(no_mangle)]
pub extern "C" fn reserve_content(length: usize) -> *mut u8 {
    let mut content = Vec::new();
    if content.try_reserve_exact(length).is_err() {
        return std::ptr::null_mut();
    }
    content.resize(length, 0);
    let mut state = state();
    state.content = content;
    state.content.as_mut_ptr()
}

/// Reads the file in the reserved space, one of `files`.
#[unsafe(no_mangle)]
pub extern "C" fn add_file(files: usize) {
    let mut state = state();
    let (name, content) = (std::mem::take(&mut state.name), std::mem::take(&mut state.content));
    let progress = |read: u64, total: u64| show_progress(read as f64, total as f64);
    let added = state.files.get_or_insert_default().add(&String::from_utf8_lossy(&name), content, files, &progress);
    debug_assert!(added.is_ok(), "data is written to memory");
}

/// Writes the page of all files; returns 1, or 0 if the result is why there is none.
#[unsafe(no_mangle)]
pub extern "C" fn write_page() -> u32 {
    let mut state = state();
    let page = state.files.take().unwrap_or_default().into_page(env!("CARGO_PKG_VERSION"));
    let is_page = page.is_ok();
    state.result = page.unwrap_or_else(String::into_bytes);
    u32::from(is_page)
}

/// Opens the file in the reserved space for replays of `device`; returns 1, or 0 if the result is why it cannot be.
#[unsafe(no_mangle)]
pub extern "C" fn open_replay(device: u32) -> u32 {
    let mut state = state();
    let (name, content) = (std::mem::take(&mut state.name), std::mem::take(&mut state.content));
    match replayer(&String::from_utf8_lossy(&name), content, u64::from(device)) {
        Ok(replayer) => {
            state.replayer = Some(replayer);
            1
        }
        Err(message) => {
            state.result = message.into_bytes();
            0
        }
    }
}

/// The snapshot lives as long as the module, whose memory the page frees as a whole.
fn replayer(name: &str, content: Vec<u8>, device: u64) -> Result<Replayer<'static, 'static>, String> {
    let source = Source::from_bytes(content).map_err(|error| error.to_string())?;
    let total = source.len() as f64;
    let snapshot = Snapshot::read(&source, &|read| show_progress(read as f64, total));
    let snapshot: &'static Snapshot = Box::leak(Box::new(snapshot.map_err(|error| error.to_string())?));
    let scope = Scope { device: Some(device), ..Scope::default() };
    let study: &'static Study<'static> = Box::leak(Box::new(Study::new(snapshot, scope)));
    Replayer::new(study, name)
}

/// Answers the request in the space of `reserve_name`; the result is JSON.
#[unsafe(no_mangle)]
pub extern "C" fn answer() {
    let mut state = state();
    let request = std::mem::take(&mut state.name);
    let answer = state.replayer.as_ref().map(|replayer| replayer.answer(&String::from_utf8_lossy(&request)));
    state.result = answer.unwrap_or_default().into_bytes();
}

/// The result of `write_page` or `answer`, UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn result_pointer() -> *const u8 {
    state().result.as_ptr()
}

/// Its length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn result_length() -> usize {
    state().result.len()
}
