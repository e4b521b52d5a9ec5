//! The functions that the page's worker calls, in this order: for each file `reserve_name`, then, once it is filled in,
//! `add_file`, which reads the file with the page's `read_file`; last `write_page`, whose result is at `result_pointer`.
//!
//! Buffers are passed as positions in the module's memory. A name, a size and a content are all that a page chooses; no
//! function here trusts more than that.

#![allow(unsafe_code, reason = "the names of exported functions; no block here is unsafe")]

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{DroppedFile, DroppedFiles};

#[link(wasm_import_module = "page")]
unsafe extern "C" {
    /// Reports `read` of `total` bytes of the current file.
    safe fn show_progress(read: f64, total: f64);
    /// Copies up to `length` bytes of the current file, from `offset` on, to `to`; returns their number.
    safe fn read_file(offset: f64, to: *mut u8, length: usize) -> usize;
}

/// The current file of the page.
struct PageFile {
    bytes: u64,
    offset: u64,
}

impl Seek for PageFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let offset = match position {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
        };
        self.offset = offset.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

impl Read for PageFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = read_file(self.offset as f64, out.as_mut_ptr(), out.len()).min(out.len());
        self.offset += read as u64;
        Ok(read)
    }
}

struct State {
    name: Vec<u8>,
    files: Option<DroppedFiles>,
    result: Vec<u8>,
}

static STATE: Mutex<State> = Mutex::new(State { name: Vec::new(), files: None, result: Vec::new() });

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

/// Reads the current file, of `bytes`, one of `files`; returns 1, or 0 if there is not enough memory.
#[unsafe(no_mangle)]
pub extern "C" fn add_file(bytes: f64, files: usize) -> u32 {
    let mut state = state();
    let name = std::mem::take(&mut state.name);
    let name = String::from_utf8_lossy(&name);
    let reader = PageFile { bytes: bytes as u64, offset: 0 };
    let file = DroppedFile { name: &name, stored_bytes: reader.bytes, reader };
    let all = state.files.get_or_insert_default();
    u32::from(all.add(file, files, &|read, total| show_progress(read as f64, total as f64)).is_ok())
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
