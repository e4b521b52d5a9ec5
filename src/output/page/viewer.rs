//! The HTML page of `oomscope viewer`: it reads the files that are dropped on it, with the analyzer as a module of
//! WebAssembly, and shows them in a frame.

use std::io::{self, Write};

use super::base64;
use super::html::{csp_hash, write_head};
use super::web::{self, STYLE};

const SCRIPT: [&str; 2] = [include_str!("web/base64.js"), include_str!("web/viewer/viewer.js")];
/// Runs in a worker, from the text of an element.
const WORKER: &str = include_str!("web/viewer/worker.js");
const BODY: &str = include_str!("web/viewer/viewer.html");
const VIEWER_STYLE: &str =
    concat!(include_str!("web/page.css"), include_str!("web/first.css"), include_str!("web/viewer/viewer.css"));

/// Writes the page to `out`. `module` is the analyzer, compressed by gzip; `version` is that of both.
///
/// # Errors
/// Any error from `out`.
pub fn write_viewer(module: &[u8], version: &str, out: &mut dyn Write) -> io::Result<()> {
    // The frame inherits this policy, so it has to allow the script and the style of the report as well.
    let script = web::join(&SCRIPT);
    let sources = format!(
        "script-src{}{} 'wasm-unsafe-eval' blob:; worker-src blob:; frame-src blob:; connect-src 'self'; ",
        csp_hash(&script)?,
        csp_hash(&web::script())?
    );
    write_head("oomscope viewer", &sources, &[VIEWER_STYLE, STYLE], version, out)?;
    writeln!(out, "{BODY}<script type=\"text/plain\" id=\"worker-text\">{WORKER}</script>")?;
    out.write_all(b"<script type=\"text/plain\" id=\"module\">")?;
    base64::write(module, out)?;
    write!(out, "</script>\n<script>{script}</script>\n</body>\n</html>\n")
}
