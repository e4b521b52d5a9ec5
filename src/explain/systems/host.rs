//! The memory of the computer: of PyTorch on the CPU, and of the programs that end a process for it.

use super::system::{ANY, System, behind};

const HOST: System = System { kind: "host", title: "Out of host memory (RAM)", ..ANY };

const LESS: &str = "Use less RAM: fewer or leaner data loader workers, load the model once or with mmap, offload less; or ask the scheduler for more.";
const NO_SNAPSHOT: &str = "A snapshot of CUDA memory does not show it.";
const WATCH: &str = "Watch the process' memory (ps -o rss, or psutil in the program): steady growth is a leak, often a list that keeps tensors \
                     or a dataset copied into every data loader worker.";
const DMESG: &str = "dmesg -T | grep -i 'killed process', on that machine: the kernel names the process and its memory";

const CPU: System = System {
    name: "PyTorch (CPU)",
    amounts: &[behind("requested", "you tried to allocate ", "the size of the tensor on the CPU")],
    means: "host memory (RAM) ran out, not GPU memory: a CPU tensor could not be allocated",
    advice: &[LESS, NO_SNAPSHOT],
    ..HOST
};

const PYTHON: System = System {
    name: "Python",
    means: "host memory (RAM) ran out, not GPU memory: an object, a buffer or a new process could not be made",
    advice: &[
        "Read or make data in parts (a generator, np.memmap, datasets on disk) instead of one list or array.",
        LESS,
        NO_SNAPSHOT,
    ],
    ..HOST
};

const KERNEL: System = System {
    name: "Linux",
    title: "The kernel ended a process: out of host memory (RAM)",
    amounts: &[behind("this_process", "anon-rss:", "RAM that the process had when it was ended")],
    means: "the computer ran out of host memory (RAM), not GPU memory, and the kernel ended the process that held most",
    advice: &[LESS, WATCH, NO_SNAPSHOT],
    ..HOST
};

/// What the kernel writes around the line that names the process.
const KERNEL_SIGN: System = System { is_sign: true, amounts: &[], ..KERNEL };

const GROUP_LIMIT: &str = "Raise the limit of the container or job (docker --memory, Kubernetes resources.limits.memory, Slurm --mem).";

const SLURM: System = System {
    name: "Slurm",
    title: "Slurm's limit on host memory (RAM) ended the job",
    means: "the job used more host memory (RAM) than it asked Slurm for, not GPU memory, and a process of it was ended",
    advice: &[
        "Ask for more: --mem (a node) or --mem-per-cpu. `sacct -j JOB --format=JobID,MaxRSS,ReqMem` shows what it used.",
        LESS,
        NO_SNAPSHOT,
    ],
    ..HOST
};

const SIGNAL: System = System {
    name: "the shell",
    title: "A process was killed, probably for host memory (RAM)",
    words: &["Killed"],
    means: "somebody sent the process the signal KILL. Without a reason beside it that is mostly the kernel, because host memory (RAM) or \
            the container's limit ran out; a full GPU does not end a process so",
    advice: &[LESS, WATCH, NO_SNAPSHOT],
    settled_by: Some(DMESG),
    ..HOST
};

const SHM: System = System {
    name: "PyTorch's DataLoader",
    title: "Out of shared memory of the host (/dev/shm)",
    means: "data loader workers hand batches over in /dev/shm, part of the host's RAM, and it is full. Containers have 64 MiB of it unless told \
            otherwise; memory of the GPU has no part in it",
    advice: &[
        "Give the container more: docker run --shm-size=16g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory at /dev/shm.",
        "Use fewer workers (num_workers) or a lower prefetch_factor; torch.multiprocessing.set_sharing_strategy('file_system') avoids /dev/shm.",
    ],
    ..HOST
};

const RANK: System = System {
    name: "torchrun",
    title: "A rank was killed, probably for host memory (RAM)",
    means: "a rank was sent the signal KILL: mostly the kernel, because host memory (RAM) or the container's limit ran out. A full GPU raises an \
            error instead, which would stand above",
    advice: &[
        "Each rank loads its own copy: load the model on one rank or on the meta device, with mmap=True or safetensors.",
        LESS,
        NO_SNAPSHOT,
    ],
    settled_by: Some(DMESG),
    ..HOST
};

pub(super) const ROWS: &[System] = &[
    System { words: &["DefaultCPUAllocator: can't allocate memory"], ..CPU },
    System { words: &["DefaultCPUAllocator: not enough memory"], ..CPU },
    System {
        name: "NumPy",
        words: &["Unable to allocate", "for an array with shape"],
        amounts: &[behind("requested", "Unable to allocate ", "the size of the array")],
        means: "host memory (RAM) ran out, not GPU memory: an array of NumPy could not be allocated",
        advice: &[
            "Read or make the array in parts (np.memmap, a generator), or take a smaller dtype than float64.",
            LESS,
            NO_SNAPSHOT,
        ],
        ..HOST
    },
    System { words: &["[Errno 12] Cannot allocate memory"], ..PYTHON },
    System { words: &["MemoryError"], is_whole_line: true, ..PYTHON },
    System { name: "C++", words: &["std::bad_alloc"], ..PYTHON },
    System {
        title: "The kernel ended a process: its limit on host memory (RAM)",
        words: &["emory cgroup out of memory: Kill"],
        means: "a container or job reached its limit on host memory (RAM), not GPU memory, and the kernel ended a process of it",
        advice: &[GROUP_LIMIT, LESS, WATCH, NO_SNAPSHOT],
        ..KERNEL
    },
    System { words: &["Out of memory: Kill"], ..KERNEL },
    System { words: &["Killed process ", "anon-rss:"], ..KERNEL },
    System {
        title: "The kernel ended a process: its limit on host memory (RAM)",
        words: &["oom-kill:constraint=CONSTRAINT_MEMCG"],
        means: "a container or job reached its limit on host memory (RAM), not GPU memory, and the kernel ended a process of it",
        advice: &[GROUP_LIMIT, LESS, WATCH, NO_SNAPSHOT],
        ..KERNEL_SIGN
    },
    System { words: &["oom-kill:constraint="], ..KERNEL_SIGN },
    System { words: &[" invoked oom-killer"], ..KERNEL_SIGN },
    System { words: &["oom_reaper: reaped process"], ..KERNEL_SIGN },
    System { words: &["slurmstepd: error: Detected", "oom_kill event"], ..SLURM },
    System { words: &["slurmstepd: error: Detected", "oom-kill event"], ..SLURM },
    System { words: &["slurmstepd: error: Exceeded", "memory limit"], ..SLURM },
    System { words: &["srun: error:", ": Out Of Memory"], ..SLURM },
    System {
        name: "LSF",
        title: "LSF's limit on host memory (RAM) ended the job",
        words: &["TERM_MEMLIMIT: job killed"],
        means: "the job used more host memory (RAM) than LSF allows it, not GPU memory, and was ended",
        advice: &[
            "Ask for more: bsub -M, and -R 'rusage[mem=..]' so that the host has it. The summary below the message says what was used (Max Memory).",
            LESS,
            NO_SNAPSHOT,
        ],
        ..HOST
    },
    System {
        name: "PBS",
        title: "PBS' limit on host memory (RAM) ended the job",
        words: &["PBS: job killed: mem ", " exceeded limit "],
        amounts: &[
            behind("this_process", "killed: mem ", "RAM that the job had when it was ended"),
            behind("limit", "exceeded limit ", "RAM that it had asked for"),
        ],
        means: "the job used more host memory (RAM) than it asked PBS for, not GPU memory, and was ended",
        advice: &["Ask for more: qsub -l select=1:mem=64gb (or -l mem=).", LESS, NO_SNAPSHOT],
        ..HOST
    },
    System {
        name: "YARN",
        title: "YARN ended a container: its limit on host memory (RAM)",
        words: &["Container killed by YARN for exceeding memory limits"],
        means: "a container of Spark used more host memory (RAM) than YARN allows it, not GPU memory, and was ended",
        advice: &[
            "Raise spark.executor.memoryOverhead: memory of Python and of native libraries counts towards it.",
            LESS,
            NO_SNAPSHOT,
        ],
        ..HOST
    },
    System {
        name: "Java",
        title: "Out of host memory (RAM) in Java",
        words: &["java.lang.OutOfMemoryError"],
        means: "a Java program (Spark, ..) reached the size of its own heap in host memory (RAM), not GPU memory",
        advice: &["Raise the heap: -Xmx, spark.executor.memory, spark.driver.memory.", NO_SNAPSHOT],
        ..HOST
    },
    System {
        name: "Dask",
        title: "Dask restarted a worker: out of host memory (RAM)",
        words: &["distributed.nanny", "memory budget"],
        means: "a worker of Dask used nearly all of the host memory (RAM) that it may have, not GPU memory, and was started anew",
        advice: &[
            "Raise memory_limit of the workers or start fewer (nthreads, n_workers); smaller partitions need less.",
            NO_SNAPSHOT,
        ],
        ..HOST
    },
    System {
        name: "Kubernetes",
        title: "Kubernetes evicted the pod: the node's host memory (RAM)",
        words: &["The node was low on resource: memory"],
        means: "host memory (RAM) of the node ran low, not GPU memory, and Kubernetes ended a pod that used more than it requested",
        advice: &[
            "Set resources.requests.memory to what the program uses: pods within their request go last.",
            LESS,
            NO_SNAPSHOT,
        ],
        ..HOST
    },
    System {
        name: "Kubernetes",
        title: "Kubernetes ended the container: its limit on host memory (RAM)",
        words: &["OOMKilled"],
        means: "the container reached its limit on host memory (RAM), not GPU memory, and was ended (exit code 137)",
        advice: &[
            "Raise resources.limits.memory of the container; /dev/shm (an emptyDir with medium: Memory) counts towards it.",
            LESS,
            NO_SNAPSHOT,
        ],
        ..HOST
    },
    System {
        name: "Ray",
        title: "Ray ended a task: out of host memory (RAM)",
        words: &["ray.exceptions.OutOfMemoryError"],
        means: "the node's host memory (RAM), not GPU memory, was nearly full, and Ray ended a task of it",
        advice: &[
            "Give tasks more: fewer at once (num_cpus of a task), or memory= of the task, so that Ray places fewer on a node.",
            "RAY_memory_usage_threshold (0.95 unless set) says how full the node may be.",
            LESS,
        ],
        ..HOST
    },
    System {
        name: "PyTorch's DataLoader",
        title: "A data loader worker was killed, probably for host memory (RAM)",
        words: &["DataLoader worker", "is killed by signal: Killed"],
        means: "a data loader worker was sent the signal KILL: mostly the kernel, because host memory (RAM) or the container's limit ran out; a full \
                GPU does not end a process so",
        advice: &[
            "Use fewer workers (num_workers) or a lower prefetch_factor: each holds whole batches, and a copy of the dataset's Python objects.",
            GROUP_LIMIT,
            WATCH,
        ],
        settled_by: Some(DMESG),
        ..HOST
    },
    System { words: &["DataLoader worker", "is killed by signal: Bus error"], ..SHM },
    System { words: &["insufficient shared memory (shm)"], ..SHM },
    System { words: &["failed (exitcode: -9)"], ..RANK },
    System { name: "DeepSpeed", words: &["exits with return code = -9"], ..RANK },
    System { name: "OpenCL", words: &["Out of Host Memory"], ..PYTHON },
    System { name: "C++", words: &["Error: bad allocation"], ..PYTHON },
    System { name: "a container", words: &["exited with code 137"], ..SIGNAL },
    System { name: "the shell", words: &["exit code 137"], ..SIGNAL },
    System { is_whole_line: true, ..SIGNAL },
    System { name: "bash", words: &[": line ", " Killed "], ..SIGNAL },
];
