//! Writes one line of JSON for each input as soon as it and all before it are done, so that a killed job keeps them.

use std::ops::ControlFlow;

use anyhow::bail;
use serde::Serialize;

use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input};
use super::output::Output;
use crate::analysis::Unreadable;
use crate::output::formats;
use crate::snapshot::Snapshot;

/// Writes the line that `answer` returns for each of `inputs`, in their order. The error of a file is a line too, and a
/// message.
pub(super) fn write_lines<T: Serialize>(
    output: Output,
    inputs: &[Input],
    answer: impl Fn(&Snapshot, &str, u64) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Exit> {
    let (mut answers, mut errors) = (0, 0);
    let line = |snapshot: &Snapshot, path: &str, bytes: u64| {
        let line = answer(snapshot, path, bytes).and_then(|answer| Ok(formats::json_line(&answer)?));
        line.map_err(|error| Unreadable { path: path.to_owned(), message: without_path(&format!("{error:#}"), path) })
    };
    output.write_with(|out| {
        let mut written = Ok(());
        inputs::read_each(inputs, line, |outcome| {
            let line = outcome.and_then(|line| line).inspect(|_| answers += 1).unwrap_or_else(|error| {
                errors += 1;
                print_stderr(&format!("{}: {}", error.path, error.message));
                error_line(&error)
            });
            // Flushed, so that a kill loses no finished file.
            written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written
    })?;
    match (answers, errors) {
        (0, 0) => bail!("no snapshot among the files given"),
        (_, 0) => Ok(Exit::Success),
        _ => Ok(Exit::Unreadable),
    }
}

/// The line of a file without an answer.
fn error_line(error: &Unreadable) -> String {
    #[derive(Serialize)]
    struct ErrorLine<'a> {
        path: &'a str,
        error: &'a str,
    }
    // Strings are always valid JSON.
    formats::json_line(&ErrorLine { path: &error.path, error: &error.message }).unwrap_or_default()
}

/// `message` without `path: ` at its start, which the line has as a key.
fn without_path(message: &str, path: &str) -> String {
    let rest = message.strip_prefix(path).and_then(|rest| rest.strip_prefix(": "));
    rest.unwrap_or(message).to_owned()
}
