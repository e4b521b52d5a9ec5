//! Puts the analyzer for browsers into the program: the file that `OOMSCOPE_VIEWER_MODULE` names, made by `.ci/viewer`.
//! Without it the program has no `oomscope viewer`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=OOMSCOPE_VIEWER_MODULE");
    let built = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("viewer.wasm.gz");
    let module = match env::var_os("OOMSCOPE_VIEWER_MODULE") {
        Some(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path).inspect_err(|_| println!("cargo::error={} cannot be read", path.display()))?
        }
        None => Vec::new(),
    };
    fs::write(built, module)
}
