//! The parts of a page that replays by itself: the analyzer as a module of WebAssembly, the snapshots, and the script of
//! the worker that runs it.

use std::io::{self, Write};

use super::base85;

/// Runs in a worker, from the text of an element.
pub(super) const WORKER: &str =
    concat!(include_str!("web/viewer/module.js"), include_str!("web/viewer/replay_worker.js"));

/// Writes `module`, the analyzer for browsers, and the `stored` files of the snapshots, in the order of the report.
pub(super) fn write_parts<'a>(
    module: &[u8],
    stored: impl Iterator<Item = &'a [u8]>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (index, file) in stored.enumerate() {
        write!(out, "<script type=\"text/plain\" class=\"snapshot\" data-snapshot=\"{index}\">")?;
        base85::write(file, out)?;
        out.write_all(b"</script>\n")?;
    }
    out.write_all(b"<script type=\"text/plain\" id=\"replay-module\">")?;
    base85::write(module, out)?;
    out.write_all(b"</script>\n")?;
    write_worker(out)
}

/// Writes the element with the worker's script.
pub(super) fn write_worker(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<script type=\"text/plain\" id=\"replay-worker\">{WORKER}</script>")
}
