//! The recipes of `examples/schedulers`, with the variables of a scheduler and stand-ins for its commands.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use serde_json::json;

use super::check_ci::Project;
use super::check_command::holding;
use super::dry_run::recording;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A job whose `python` copies a recording, with `srun` and the program on its PATH.
fn project() -> Project {
    let project = Project::new();
    std::fs::create_dir(project.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_oomscope"), project.path("bin/oomscope")).unwrap();
    for (name, script) in
        [("python", "#!/bin/sh\necho \"$*\" >> calls\nexec sh job.sh\n"), ("srun", "#!/bin/sh\nexec \"$@\"\n")]
    {
        let name = format!("bin/{name}");
        project.write(&name, script);
        std::fs::set_permissions(project.path(&name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    project
}

fn run(project: &Project, command: &[&str]) -> (Option<i32>, String) {
    let bin = project.path("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(project.0.path())
        .envs([("PATH", path.as_str()), ("SLURM_JOB_ID", "42"), ("GPU", "a10"), ("OOMS", "ooms")])
        .env("SLURM_SUBMIT_DIR", project.0.path())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn calls(project: &Project) -> String {
    std::fs::read_to_string(project.path("calls")).unwrap_or_default()
}

#[test]
fn slurm_refuses_only_what_is_proved_too_large_and_reports_what_died() {
    let sbatch = format!("{ROOT}/examples/schedulers/train.sbatch");
    let epilog = format!("{ROOT}/examples/schedulers/epilog.sh");
    let job = project();
    job.records(&recording(&json!([]), 0, true));
    job.write("code", "1");
    let (code, err) = run(&job, &["bash", &sbatch]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.ends_with("refused: the job would not fit\n"), "{err}");
    assert_eq!(calls(&job), "train.py --steps 3\n", "only the dry run");
    assert_eq!(run(&job, &["sh", &epilog]).0, Some(0));
    assert!(!job.has("ooms"));

    // It runs in each of these cases; then it fails on the GPU.
    for (dry_code, recorded) in [("0", true), ("3", true), ("0", false)] {
        let job = project();
        if recorded {
            job.records(&holding(100, 7));
        }
        job.write("code", dry_code);
        run(&job, &["bash", &sbatch]);
        assert_eq!(calls(&job), "train.py --steps 3\ntrain.py\n", "{dry_code} {recorded}");
    }

    // Slurm starts it again, twice.
    let job = project();
    job.records(&holding(100, 7));
    for directory in ["ooms/42", "ooms/42/run-2", "ooms/42/run-3"] {
        let (_, err) = run(&job, &["bash", &sbatch]);
        let found = job.path(directory).read_dir().unwrap().flatten();
        let snapshots = found.filter(|entry| entry.file_name().to_string_lossy().ends_with(".pickle.gz"));
        assert_eq!(snapshots.count(), 1, "{directory}: {err}");
    }
    let (code, err) = run(&job, &["sh", &epilog]);
    assert_eq!(code, Some(0), "{err}");
    assert!(std::fs::read_to_string(job.path("ooms/42/report.md")).unwrap().starts_with("## "));
}

#[test]
fn tasks_of_a_restarted_job_share_a_directory_as_long_as_one_runs() {
    let job = project();
    job.records(&holding(100, 7));
    let oomscope = ["oomscope", "run", "-o", "ooms", "--", "sh"];
    assert_eq!(run(&job, &[&oomscope[..], &["job.sh"]].concat()).0, Some(0));
    let waiting =
        "touch started; until [ -e go ]; do sleep 0.02; done; test -e \"$OOMSCOPE_DIR/.recorder\" && sh job.sh";
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run(&job, &[&oomscope[..], &["-c", waiting]].concat()));
        while !job.has("started") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let second = run(&job, &[&oomscope[..], &["job.sh"]].concat());
        job.write("go", "");
        let first = first.join().unwrap();
        assert_eq!((first.0, second.0), (Some(0), Some(0)), "{} {}", first.1, second.1);
    });
    let found = job.path("ooms/run-2").read_dir().unwrap().count();
    assert_eq!((found, job.has("ooms/run-3")), (2, false), "two snapshots, and the recorder is removed");
}

/// The scripts of `job.yaml`, in order.
fn scripts(yaml: &str) -> Vec<String> {
    let blocks = yaml.split("- |\n").skip(1);
    blocks
        .map(|block| {
            let indent = block.len() - block.trim_start().len();
            let lines = block.lines().take_while(|line| line.len() - line.trim_start().len() >= indent);
            lines.map(|line| format!("{}\n", &line[indent..])).collect()
        })
        .collect()
}

#[test]
fn kubernetes_refuses_the_same_and_a_restarted_container_is_no_crash_loop() {
    let yaml = std::fs::read_to_string(format!("{ROOT}/examples/schedulers/job.yaml")).unwrap();
    let scripts = scripts(&yaml);
    let [init, container] = scripts.as_slice() else { panic!("{scripts:?}") };
    let job = project();
    job.records(&holding(100, 7));
    assert_eq!(run(&job, &["sh", "-c", init]).0, Some(0));
    job.write("code", "3");
    assert_eq!(run(&job, &["sh", "-c", init]).0, Some(0), "not certain");
    for _ in 0..3 {
        let (code, err) = run(&job, &["sh", "-c", container]);
        assert_eq!(code, Some(3), "{err}");
    }
    assert!(job.has("ooms/run-3") && job.has("ooms/report.md"));
    job.records(&recording(&json!([]), 0, true));
    assert_eq!(run(&job, &["sh", "-c", init]).0, Some(1));
}
