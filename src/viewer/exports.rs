//! The functions that the page's worker calls, in this order: for each file `reserve_name`, `reserve_content`, then,
//! once both are filled in, `add_file`; last `write_page`, whose result is at `result_pointer`.
//!
//! Buffers are passed as positions in the module's memory. A name or a size is all that a page chooses; no function
//! here trusts more than that.

#![allow(unsafe_code, reason = "the names of exported functions; no block here is unsafe")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::DroppedFiles;

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
    result: Vec<u8>,
}

static STATE: Mutex<State> =
    Mutex::new(State { name: Vec::new(), content: Vec::new(), files: None, result: Vec::new() });

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

/// The result of `write_page`, UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn result_pointer() -> *const u8 {
    state().result.as_ptr()
}

/// Its length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn result_length() -> usize {
    state().result.len()
}
