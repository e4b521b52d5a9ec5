//! `oomscope run` records a job that knows nothing of it, ends as the job does, and says what failed.
//!
//! Needs Python 3.8 or later; a stand-in for torch is in tests/python/fake. Slow: many runs of Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::python::has_python;

const OOM: &str = "import torch\nkeep = []\nwhile True:\n    keep.append(torch.empty(100 << 20, device='cuda'))\n";

struct Job {
    directory: tempfile::TempDir,
}

impl Job {
    /// Without Python these tests say nothing.
    fn new() -> Option<Self> {
        has_python().then(|| Self { directory: tempfile::tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `oomscope run OPTIONS -- COMMAND`, in a directory of its own, with the stand-in for torch.
    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/fake");
        Command::new(env!("CARGO_BIN_EXE_oomscope"))
            .current_dir(self.directory.path())
            .arg("run")
            .args(options)
            .arg("--")
            .args(command)
            .env("PYTHONPATH", fake)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("RANK")
            .output()
            .unwrap()
    }

    fn snapshots(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with("run-")).collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_failed_request_writes_a_snapshot_and_a_page() {
    let Some(job) = Job::new() else { return };
    std::fs::write(job.path("train.py"), OOM).unwrap();
    let output = job.run(&[], &["python3", "train.py"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(errors.contains("OutOfMemoryError"), "{errors}");
    let snapshots = job.snapshots("oomscope-run-1");
    assert!(matches!(snapshots.as_slice(), [one] if one.ends_with("-oom1.pickle.gz")), "{snapshots:?}");
    assert!(errors.ends_with("saved   1 snapshot in oomscope-run-1\n"), "{errors}");
    let (_, page) = errors.split_once("\nout of memory on GPU 0: ").expect(&errors);
    assert!(page.lines().next().unwrap().contains("train.py:4"), "{page}");
    assert!(page.contains("next    oomscope report -o oom.html oomscope-run-1/"), "{page}");
    assert!(page.lines().count() <= 30, "{page}");
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some(job) = Job::new() else { return };
    for (code, command) in [
        (0, vec!["python3", "-c", "pass"]),
        (7, vec!["python3", "-c", "import sys; sys.exit(7)"]),
        (137, vec!["python3", "-c", "import os; os.kill(os.getpid(), 9)"]),
        (127, vec!["no-such-program"]),
        (126, vec!["./"]),
    ] {
        let output = job.run(&[], &command);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", text(&output.stderr));
        assert!(job.snapshots(".").is_empty(), "{command:?} left something");
    }
}

#[test]
fn the_reason_for_no_recording_is_reported() {
    let Some(job) = Job::new() else { return };
    for (said, command) in [
        ("no Python process that reads PYTHONPATH", vec!["sh", "-c", "exit 0"]),
        ("-I and -E ignore PYTHONPATH", vec!["python3", "-I", "-c", "pass"]),
        ("no Python process imported torch, unless", vec!["python3", "-c", "pass"]),
        ("nothing used CUDA", vec!["python3", "-c", "import torch"]),
        ("1 process recorded, and no request", vec!["python3", "-c", "import torch; torch.empty(1, device='cuda')"]),
    ] {
        let errors = text(&job.run(&[], &command).stderr);
        assert!(errors.contains(said), "{command:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
#[cfg(unix)]
fn a_failure_without_room_for_its_snapshot_is_reported() {
    let Some(job) = Job::new() else { return };
    let full = format!("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n{OOM}");
    std::fs::write(job.path("full.py"), full).unwrap();
    let output = job.run(&[], &["python3", "full.py"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("a request for GPU memory failed in 1 process, but no snapshot"), "{errors}");
}

#[test]
#[cfg(unix)]
fn an_interrupt_stays_one_with_a_snapshot_at_the_end() {
    let Some(job) = Job::new() else { return };
    let program = "import torch\nheld = torch.empty(1 << 20, device='cuda')\nraise KeyboardInterrupt";
    for options in [&[][..], &["--at", "exit"]] {
        let output = job.run(options, &["python3", "-c", program]);
        assert_eq!(output.status.code(), Some(130), "{options:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_failure_is_known_without_a_history() {
    let Some(job) = Job::new() else { return };
    let unrecorded = OOM.replace("while", "torch.cuda.init()\ntorch._C._cuda_end_history()\nwhile");
    std::fs::write(job.path("train.py"), unrecorded).unwrap();
    let errors = text(&job.run(&[], &["python3", "train.py"]).stderr);
    let page = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("out of memory on GPU 0: 100 MiB requested; no history"), "{errors}");
}

#[test]
fn survived_failures_are_few_and_a_restart_has_a_directory_of_its_own() {
    let Some(job) = Job::new() else { return };
    let survive = "import torch\nfor _ in range(1000):\n    try: torch.empty(2 << 30, device='cuda')\n    \
                   except torch.OutOfMemoryError: pass\n";
    std::fs::write(job.path("find.py"), survive).unwrap();
    let output = job.run(&["-o", "out"], &["python3", "find.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(job.snapshots("out").len(), 2, "{:?}", job.snapshots("out"));
    let again = job.run(&["-o", "out"], &["python3", "find.py"]);
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stderr).contains("those of this one go to out/run-2"), "{}", text(&again.stderr));
    assert_eq!((job.snapshots("out").len(), job.snapshots("out/run-2").len()), (2, 2));
    // A run that was killed leaves its recorder.
    std::fs::create_dir(job.path("out/.recorder")).unwrap();
    std::fs::create_dir(job.path("out/run-2/.recorder")).unwrap();
    let third = job.run(&["-o", "out"], &["python3", "find.py"]);
    assert_eq!(third.status.code(), Some(0), "{}", text(&third.stderr));
    assert_eq!(job.snapshots("out/run-3").len(), 2, "{}", text(&third.stderr));
    assert!(!job.path("out/.recorder").exists() && !job.path("out/run-2/.recorder").exists());
    // A restart without a failure leaves no directory.
    let fourth = job.run(&["-o", "out"], &["python3", "-c", "pass"]);
    assert_eq!(fourth.status.code(), Some(0));
    assert!(!job.path("out/run-4").exists());
}

#[test]
fn the_environments_own_sitecustomize_runs_too() {
    let Some(job) = Job::new() else { return };
    std::fs::create_dir(job.path("site")).unwrap();
    let own = "import sys\nsys.own_sitecustomize = True\n";
    std::fs::write(job.path("site/sitecustomize.py"), own).unwrap();
    let script = "import sys; sys.exit(0 if sys.own_sitecustomize else 1)";
    let command = format!("PYTHONPATH=$PYTHONPATH:site exec python3 -c '{script}'");
    let output = job.run(&[], &["sh", "-c", &command]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn the_other_ranks_write_theirs_before_the_failing_one_goes_on() {
    let Some(job) = Job::new() else { return };
    let ranks = "import os, subprocess, sys, time\n\
                 if 'RANK' not in os.environ:\n    \
                     ranks = [subprocess.Popen([sys.executable, __file__], env=dict(os.environ, RANK=str(n))) for n in (0, 1)]\n    \
                     ranks[1].wait(); ranks[0].kill(); ranks[0].wait(); sys.exit(3)\n\
                 import torch\n\
                 keep = [torch.empty(1 << 20, device='cuda')]\n\
                 if os.environ['RANK'] == '0': time.sleep(60)\n\
                 time.sleep(1)\n\
                 torch.empty(2 << 30, device='cuda')\n";
    std::fs::write(job.path("ranks.py"), ranks).unwrap();
    let output = job.run(&["-o", "out"], &["python3", "ranks.py"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_eq!(job.snapshots("out"), ["rank0-asked1.pickle.gz", "rank1-oom1.pickle.gz"]);
}

#[test]
fn dump_reaches_every_recorded_process() {
    let Some(job) = Job::new() else { return };
    let dump = format!("{} dump out", env!("CARGO_BIN_EXE_oomscope"));
    let script = format!(
        "import os, subprocess, torch\nkeep = torch.empty(1 << 20, device='cuda')\n\
         paths = subprocess.run('{dump}', shell=True, check=True, stdout=-1, text=True).stdout.split()\n\
         assert len(paths) == 1 and os.path.exists(paths[0]), paths\n"
    );
    std::fs::write(job.path("asks.py"), script).unwrap();
    let output = job.run(&["-o", "out"], &["python3", "asks.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(job.snapshots("out").len(), 1);
}
