//! The answers about several inputs, in their order: written as soon as each and all before it are known, so that a
//! killed job keeps them.

use std::ops::ControlFlow;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::json;

use super::args::Format;
use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input};
use super::output::Output;
use crate::analysis::{Unreadable, rank_in_path};
use crate::output::document::Document;
use crate::output::formats;
use crate::snapshot::Snapshot;

/// Writes the answer of `command` about one snapshot or, with `--format jsonl`, a line about each of several.
pub(super) fn write_answers<T: Serialize>(
    (command, format): (&str, Format),
    output: Output,
    inputs: &[Input],
    answer: impl Fn(&Snapshot, &str) -> anyhow::Result<T> + Sync,
    document: impl Fn(&T) -> Document,
) -> anyhow::Result<Exit> {
    match inputs {
        _ if format == Format::Jsonl => write_lines(output, inputs, |snapshot, path, _| answer(snapshot, path)),
        [input] => {
            let answer = answer(&inputs::read_one(&input.path)?, &input.name)?;
            output.write_answer(format, &answer, document)
        }
        _ => bail!("{command} takes one snapshot; with --format jsonl several, one line each"),
    }
}

/// Writes each answer as a line of JSON. The error of a file is a line, too, and a message. Fails if no input is a snapshot.
pub(super) fn write_lines<T: Serialize>(
    output: Output,
    inputs: &[Input],
    answer: impl Fn(&Snapshot, &str, u64) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Exit> {
    output.write_streamed(|out| {
        let (mut written, mut exit) = (Ok(()), None);
        inputs::read_each(
            inputs,
            |snapshot, path, bytes| {
                let line = answer(snapshot, path, bytes).and_then(|answer| Ok(formats::json_line(&answer)?));
                line.map_err(|error| without_answer(path, &error))
            },
            |outcome| {
                let line = match outcome.and_then(|line| line) {
                    Ok(line) => {
                        exit.get_or_insert(Exit::Success);
                        line
                    }
                    Err(error) => {
                        exit = Some(Exit::Unreadable);
                        print_stderr(&format!("{}: {}", error.path, error.message));
                        error_line(&error)
                    }
                };
                written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        );
        written?;
        exit.map(Some).context("no snapshot among the files given")
    })
}

/// The file at `path`, of which `error` says why it has no answer, without `path: ` at its start.
fn without_answer(path: &str, error: &anyhow::Error) -> Unreadable {
    let message = format!("{error:#}");
    let rest = message.strip_prefix(path).and_then(|rest| rest.strip_prefix(": "));
    Unreadable { path: path.to_owned(), message: rest.unwrap_or(&message).to_owned() }
}

/// The line of a file without an answer.
fn error_line(error: &Unreadable) -> String {
    // Strings are always valid JSON.
    let mut line = json!({ "path": error.path, "error": error.message });
    // So that a missing rank can be counted.
    if let Some(rank) = rank_in_path(&error.path) {
        line["rank"] = json!(rank);
    }
    formats::json_line(&line).unwrap_or_default()
}
