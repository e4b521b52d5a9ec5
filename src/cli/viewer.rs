//! `oomscope viewer`

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::exit::Exit;
use super::output::Output;
use crate::output::page::write_viewer;

/// Write an HTML page that analyzes the snapshots dropped on it
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/viewer.txt"))]
pub(super) struct Viewer {
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Viewer) -> anyhow::Result<Exit> {
    if MODULE.is_empty() {
        bail!(
            "this build has no analyzer for browsers: releases have it, viewer.html among them, and docs/viewer.md builds it"
        );
    }
    if args.output.is_none() && io::stdout().is_terminal() {
        bail!("name a file for the page: -o viewer.html");
    }
    Output::open(args.output.as_deref())?.write_with(|out| write_viewer(MODULE, env!("CARGO_PKG_VERSION"), out))
}

/// The analyzer for browsers, compressed by gzip; empty in a build without it (`build.rs`).
const MODULE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/viewer.wasm.gz"));
