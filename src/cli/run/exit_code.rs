//! Exit codes that processes of a dry run could not write into their snapshots: Python's own exit does not show them.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::recorded_process::{is_named, paths_in};
use crate::cli::atomic_file::AtomicFile;
use crate::cli::exit::print_stderr;
use crate::snapshot::EXIT_CODE;

/// Completes the snapshots of the processes that ended with another code than they had announced. The stub of CUDA
/// left a file `ended-HOST-PID` with the code and the path of the snapshot in `control`.
pub(super) fn complete_snapshots(control: &Path) {
    for ended in paths_in(control).filter(|path| is_named(path, "ended-")) {
        let text = fs::read_to_string(ended).unwrap_or_default();
        let code_and_path =
            text.split_once(' ').and_then(|(code, path)| Some((code.parse::<u8>().ok()?, Path::new(path))));
        // The snapshots lie beside the control directory.
        if let Some((code, path)) = code_and_path.filter(|(_, path)| path.parent() == control.parent())
            && let Err(error) = complete(path, EXIT_CODE, &format!("{code:03}"))
        {
            print_stderr(&format!("{}: its exit code {code} could not be added: {error}", path.display()));
        }
    }
}

/// Writes `text` in place of as many question marks after `label` in the snapshot at `path`.
pub(in crate::cli) fn complete(path: &Path, label: &str, text: &str) -> io::Result<()> {
    let mut pickle = Vec::new();
    let file = File::open(path)?;
    let permissions = file.metadata()?.permissions();
    MultiGzDecoder::new(io::BufReader::new(file)).read_to_end(&mut pickle)?;
    let placeholder = format!("{label}{}", "?".repeat(text.len()));
    let found = pickle.windows(placeholder.len()).rposition(|window| window == placeholder.as_bytes());
    let start = found.ok_or_else(|| io::Error::other("it has no place for it"))? + label.len();
    pickle[start..start + text.len()].copy_from_slice(text.as_bytes());
    AtomicFile::replace(path)?.write_with(|out| {
        let mut out = GzEncoder::new(out, Compression::fast());
        out.write_all(&pickle)?;
        out.finish().map(|_| ())
    })?;
    fs::set_permissions(path, permissions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_gzip(path: &Path, contents: &[u8]) {
        let mut out = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
        out.write_all(contents).unwrap();
        out.finish().unwrap();
    }

    fn read_gzip(path: &Path) -> Vec<u8> {
        let mut contents = Vec::new();
        MultiGzDecoder::new(io::BufReader::new(File::open(path).unwrap())).read_to_end(&mut contents).unwrap();
        contents
    }

    #[test]
    fn the_code_replaces_the_last_question_marks() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control");
        fs::create_dir(&control).unwrap();
        let (inside, outside) = (directory.path().join("a.pickle.gz"), control.join("b.pickle.gz"));
        for (name, path) in [("ended-host-1", &inside), ("ended-host-2", &outside)] {
            write_gzip(path, b"oomscope exit code: ??? oomscope exit code: ???.");
            fs::write(control.join(name), format!("3 {}", path.display())).unwrap();
        }
        complete_snapshots(&control);
        assert_eq!(read_gzip(&inside), b"oomscope exit code: ??? oomscope exit code: 003.");
        assert_eq!(read_gzip(&outside), b"oomscope exit code: ??? oomscope exit code: ???.");
    }
}
