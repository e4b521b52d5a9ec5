//! The conclusion from a message of PyTorch's allocator, and of other systems: verdict, reason and advice.
//!
//! The ladder of [`decide`] gives the verdict; [`conclude`] chooses the row of the table with its words, and [`texts`] has
//! names for the numbers in them. Messages show neither the stream and pool of free memory nor the number of pieces.

use std::collections::BTreeMap;

use itertools::Itertools as _;

use super::numbers::MessageNumbers;
use super::standard_advice::{Snippet, StandardAdvice};
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::{
    ApproxBytes, Likelihood, MemoryAtFailure, USUAL_OUTSIDE, Verdict, decide, format_approx,
};
use crate::base::units::{counted, size};
use crate::explain::message::Wording;
use crate::explain::table::{Form, PrintedNumbers, conclusion_row};

/// Means the advice of the device's vendor.
const REFUSALS: &str = "{refusals}";

#[derive(Debug, Default)]
pub(super) struct Conclusion {
    pub(super) verdict: Verdict,
    /// The row of the table with the words, for a message of PyTorch's allocator.
    row: &'static str,
    pub(super) reason: String,
    pub(super) is_certain: bool,
    pub(super) within_rounding: bool,
    pub(super) settled_by: Option<String>,
    pub(super) settings_can_help: Option<bool>,
    pub(super) advice: Vec<String>,
}

impl Conclusion {
    fn new(row: &'static str, verdict: Verdict, is_certain: bool) -> Self {
        Self { verdict, row, is_certain, ..Self::default() }
    }

    /// For a message that lacks numbers.
    fn incomplete() -> Self {
        Self::new("incomplete", Verdict::Unknown, false)
    }

    /// From a message of a system other than PyTorch's allocator, with the numbers in `text`. The verdict is unknown:
    /// verdicts are about requests of that allocator.
    pub(super) fn from_form(form: &Form, numbers: &PrintedNumbers) -> Self {
        Self {
            reason: numbers.fill_first(&form.why).unwrap_or_default(),
            settled_by: form.settled_by.clone().filter(|evidence| !evidence.is_empty()),
            advice: form.advice.iter().filter_map(|line| numbers.fill(line)).collect(),
            is_certain: form.settled_by.is_none(),
            ..Self::default()
        }
    }

    /// Fills in the words of its row, in the terms of the vendor.
    fn in_words(self, numbers: &MessageNumbers) -> Self {
        let row = conclusion_row(self.row);
        let mut texts = texts(numbers, self.verdict, self.settings_can_help);
        let expandable = texts.fill_first(&conclusion_row("expandable").advice);
        texts.add("expandable", expandable.unwrap_or_default());
        let vendor = numbers.vendor;
        let mut advice = Vec::new();
        for line in &row.advice {
            if line == REFUSALS {
                advice.extend(vendor.refusals(numbers.request.map_or(0, |request| request.bytes)));
            } else {
                advice.extend(texts.fill(line).map(|line| vendor.translate(line)));
            }
        }
        Self {
            reason: vendor.translate(texts.fill_first(&row.why).unwrap_or_default()),
            settled_by: row.settled_by.clone().filter(|_| !self.is_certain).map(|by| vendor.translate(by)),
            advice,
            ..self
        }
    }

    /// A command or setting to copy, if the first advice is the standard one. `None` means that the source line is the
    /// thing to copy.
    pub(super) fn snippet(&self, numbers: &MessageNumbers) -> Option<String> {
        let row = StandardAdvice::for_verdict(self.verdict);
        let standard = numbers.vendor.translate(row.text.to_owned());
        let is_standard = self.advice.first().is_some_and(|first| first.starts_with(&standard));
        let words = match row.snippet {
            // The command lists the processes on the device, so it helps with any advice on outside memory.
            Snippet::Command(words) if is_standard || self.verdict == Verdict::NonPytorch => words.to_owned(),
            Snippet::AllocConf(option) if is_standard => shell_assignment(option, None),
            _ => return None,
        };
        Some(numbers.vendor.translate(words))
    }
}

/// Every name that holds for `numbers`, whose verdict is `verdict`.
fn texts(numbers: &MessageNumbers, verdict: Verdict, settings_can_help: Option<bool>) -> PrintedNumbers<'static> {
    let printed = numbers.printed.figures.iter().map(|(name, (_, amount))| (*name, size(amount.bytes)));
    let mut texts: BTreeMap<&'static str, String> = printed.collect();
    let request = numbers.request.unwrap_or_default();
    let memory = numbers.memory_at_failure(request, numbers.free.unwrap_or_default());
    let cached = numbers.unallocated.unwrap_or_default();
    let all_free = memory.device_free.saturating_add(cached);
    let amounts = [
        ("reserved", numbers.reserved),
        ("tensors", numbers.tensors),
        ("tensors_then", numbers.tensors.map(|tensors| tensors.saturating_add(request))),
        ("outside", numbers.outside),
        ("held", numbers.reserved.map(|reserved| reserved.saturating_sub(cached))),
        ("would_hold", numbers.reserved.map(|reserved| reserved.saturating_add(request))),
        ("own_outside", numbers.this_process_outside.filter(|outside| outside.bytes > USUAL_OUTSIDE)),
        ("all_free", Some(all_free)),
        ("lacking", Some(memory.segment.saturating_sub(all_free))),
    ];
    texts.extend(amounts.into_iter().filter_map(|(name, amount)| Some((name, format_approx(amount?)))));
    if let Some(cached) = numbers.unallocated {
        texts.entry("unallocated").or_insert_with(|| format_approx(cached));
    }
    // The size as printed has more digits.
    texts.extend(numbers.printed.figure("block_limit").map(|limit| ("block_limit", limit.text.clone())));
    let needed = memory.needed_from_device();
    let requested = texts.get("requested").cloned().unwrap_or_default();
    let granules = format!("{} (whole granules of an expandable segment, for {requested})", format_approx(needed));
    texts.insert("needed", if needed == request { requested } else { granules });
    texts.extend(known(numbers).map(|known| ("known", known)));
    let advised =
        [("standard", verdict), ("non_pytorch", Verdict::NonPytorch), ("fragmentation", Verdict::Fragmentation)];
    texts.extend(advised.map(|(name, verdict)| (name, StandardAdvice::for_verdict(verdict).text.to_owned())));
    let note = numbers.vendor.expandable.as_ref();
    texts.insert("expandable_note", note.map_or_else(String::new, |note| format!(" {note}")));
    add_processes(&mut texts, numbers);
    let windows = numbers.exceeds_device().then(|| {
        format!(
            ". PyTorch has {} reserved, more than the device has ({}): Windows added host memory (shared GPU memory), \
             which is slow, and has no more",
            texts.get("reserved").map_or("", String::as_str),
            texts.get("capacity").map_or("", String::as_str)
        )
    });
    texts.insert("windows", windows.unwrap_or_default());
    let conditions =
        conditions(numbers, &memory).into_iter().chain([("settings_help", settings_can_help == Some(true))]);
    texts.extend(conditions.filter(|(_, holds)| *holds).map(|(name, _)| (name, String::new())));
    PrintedNumbers::from_texts(texts)
}

/// The conditions of words, and whether each holds for `numbers` with `memory`.
fn conditions(numbers: &MessageNumbers, memory: &MemoryAtFailure) -> [(&'static str, bool); 15] {
    let request = numbers.request.unwrap_or_default();
    let cached = numbers.unallocated.unwrap_or_default();
    let all_free = memory.device_free.saturating_add(cached);
    let releases = numbers.printed.releases;
    let is_cache_full = numbers.is_cache_full(request) && all_free.covers(memory.segment).is_likely();
    let may_suffice = numbers.min_request().is_some_and(|request| all_free.covers(request) != Likelihood::No);
    let others = memory.other_pool.saturating_add(memory.outside);
    let with_outside = numbers.outside.map(|outside| all_free.saturating_add(outside).covers(memory.segment));
    let is_context = numbers.reclaimable_outside.is_some_and(|outside| outside.bytes == 0);
    let parts = numbers.printed.figure("other").zip(numbers.printed.figure("allocated"));
    [
        ("cut_by_2_3", numbers.capacity.is_none() && releases.is_some_and(|releases| releases.to_string() == "2.3")),
        ("too_large", numbers.exceeds_capacity(memory.segment)),
        ("cache_full", is_cache_full),
        ("with_others", memory.suffices_with_device(cached.saturating_add(others)).is_likely()),
        ("context", is_context && with_outside.is_some_and(Likelihood::is_likely)),
        ("maybe", !is_cache_full && may_suffice),
        ("short", !is_cache_full && !may_suffice),
        ("own_suffices", memory.suffices_with_device(memory.own.all).is_likely()),
        ("device_covers", memory.device_free.covers(request).is_likely()),
        ("within_limit", numbers.exceeds_limit(request).is_some()),
        ("over_limit", numbers.exceeds_limit(request).is_some_and(Likelihood::is_likely)),
        ("others_lead", parts.is_some_and(|(other, allocated)| other.bytes > allocated.bytes)),
        ("expandable_on", numbers.printed.expandable == Some(true)),
        ("expandable_none", numbers.printed.expandable == Some(false)),
        ("expandable_old", releases.and_then(|releases| releases.last).is_some_and(|last| last < (2, 1))),
    ]
}

/// The numbers of a message that is cut.
fn known(numbers: &MessageNumbers) -> Option<String> {
    let known = [
        ("requested", "was requested"),
        ("free", "was free"),
        ("allocated", "was allocated by PyTorch"),
        ("reserved", "was reserved by PyTorch"),
    ];
    let known =
        known.iter().filter_map(|(name, verb)| Some(format!("{} {verb}", size(numbers.printed.figure(name)?.bytes))));
    Some(known.format(", ").to_string()).filter(|known| !known.is_empty())
}

/// The processes that use the device.
fn add_processes(texts: &mut BTreeMap<&'static str, String>, numbers: &MessageNumbers) {
    let others = numbers.other_processes();
    let mut users: Vec<String> =
        others.iter().take(3).map(|other| format!("process {}: {}", other.pid, size(other.in_use.bytes))).collect();
    if others.len() > users.len() {
        let all = others.iter().map(|other| other.in_use.bytes).fold(0, u64::saturating_add);
        users = vec![format!("{} together: {}", counted(others.len() as u64, "process"), size(all))];
    }
    let own = numbers.this_process_outside.filter(|outside| outside.bytes > 0);
    users.extend(own.map(|outside| format!("this process itself: {}", format_approx(outside))));
    texts.insert("users", if users.is_empty() { String::new() } else { format!(" ({})", users.join(", ")) });
    match numbers.equal_processes() {
        Some((count, bytes)) => {
            texts.extend([("ranks", counted(count as u64, "process")), ("rank_bytes", size(bytes))]);
        }
        None => texts.extend([("no_ranks", String::new())]),
    }
    if let Some(largest) = others.first() {
        texts.extend([("pid", largest.pid.to_string()), ("pid_bytes", size(largest.in_use.bytes))]);
        let is_known = numbers.this_pid.is_some() || numbers.printed.figure("this_process").is_some();
        let or_this = " It may be this process itself: inside a container it has another number.";
        texts.insert("or_this", if is_known { String::new() } else { or_this.to_owned() });
    }
    let is_nobody = numbers.printed.processes.is_empty() && !texts.contains_key("own_outside");
    texts.extend(is_nobody.then(|| ("nobody", String::new())));
}

pub(super) fn conclude(numbers: &MessageNumbers) -> Conclusion {
    let conclusion = if numbers.is_impossible_size {
        Conclusion { settings_can_help: Some(false), ..Conclusion::new("impossible-size", Verdict::Unknown, true) }
    } else if numbers.printed.figure("block_limit").is_some() {
        Conclusion { settings_can_help: Some(false), ..Conclusion::new("block-limit", Verdict::MemoryLimit, true) }
    } else if numbers.is_contradictory() {
        Conclusion::new("contradictory", Verdict::Unknown, false)
    } else {
        match (numbers.printed.wording, numbers.request, numbers.free) {
            (Wording::Mps, Some(_), _) if numbers.allowed.is_some() => {
                Conclusion::new("metal", Verdict::MemoryLimit, true)
            }
            (Wording::Async, Some(request), Some(free)) => {
                asynchronous(numbers, request, free).unwrap_or_else(Conclusion::incomplete)
            }
            (Wording::Mps | Wording::Async, ..) | (_, None, _) => Conclusion::incomplete(),
            (_, Some(request), Some(free)) => native(numbers, request, free),
            (_, Some(request), None) => without_free(numbers, request).unwrap_or_else(Conclusion::incomplete),
        }
    };
    conclusion.in_words(numbers)
}

/// For messages of the caching allocator with all numbers (PyTorch 1.0 and later).
fn native(numbers: &MessageNumbers, request: ApproxBytes, free: ApproxBytes) -> Conclusion {
    let ruling = decide(&numbers.memory_at_failure(request, free));
    let base = Conclusion {
        within_rounding: ruling.within_rounding,
        settings_can_help: settings_can_help(numbers, free),
        ..Conclusion::new("capacity", ruling.verdict, ruling.is_certain)
    };
    let is_unknown = numbers.reserved.is_none() || numbers.unallocated.is_none();
    match ruling.verdict {
        Verdict::MemoryLimit if is_held_by_others(numbers) => {
            // The printed free memory was freed after the refusal.
            Conclusion { row: "freed-since", verdict: Verdict::NonPytorch, is_certain: false, ..base }
        }
        Verdict::MemoryLimit => memory_limit(numbers, request, base),
        _ if is_unknown => Conclusion::incomplete(),
        Verdict::PrivatePool => {
            // The request may come from one of these pools, and then settings can help.
            Conclusion { row: "private-pool", settings_can_help: base.settings_can_help.filter(|helps| *helps), ..base }
        }
        Verdict::Fragmentation => Conclusion { row: "fragmentation", ..base },
        Verdict::NonPytorch => {
            let is_certain = base.is_certain && !numbers.other_processes().is_empty();
            Conclusion { row: "non-pytorch", is_certain, ..base }
        }
        verdict => {
            debug_assert_eq!(verdict, Verdict::Capacity, "a message cannot show other verdicts");
            base
        }
    }
}

/// Settings rearrange free memory, so they can help if all free memory within the limit is enough. Free memory of the
/// device serves a request smaller than a segment only if segments can grow.
fn settings_can_help(numbers: &MessageNumbers, free: ApproxBytes) -> Option<bool> {
    let (unallocated, smallest) = (numbers.unallocated?, numbers.min_request()?);
    let left = numbers.allowed.zip(numbers.reserved).map(|(allowed, reserved)| allowed.saturating_sub(reserved));
    let room = left.filter(|left| left.bytes < free.bytes).unwrap_or(free);
    let covers = room.saturating_add(unallocated).covers(smallest);
    if unallocated.bytes > 0 {
        return Some(covers != Likelihood::No);
    }
    // Without whole segments, the free memory may be enough.
    let is_from_segment = numbers.request != Some(smallest);
    Some((is_from_segment || numbers.printed.expandable == Some(true)) && covers.is_likely())
}

/// The device had room, so something else refused the request.
fn memory_limit(numbers: &MessageNumbers, request: ApproxBytes, base: Conclusion) -> Conclusion {
    // If rounding may hide that the limit was exceeded, the limit is the cause.
    let exceeds = numbers.exceeds_limit(request).filter(|exceeds| *exceeds != Likelihood::No);
    let (row, is_certain) = match exceeds {
        Some(exceeds) => ("own-limit", exceeds == Likelihood::Yes),
        None if numbers.printed.refused_by_pool => ("refused-by-pool", true),
        None if numbers.printed.exceeds_reserve => ("exceeds-reserve", true),
        // Or the memory was freed a moment later.
        None => ("refused-elsewhere", false),
    };
    Conclusion { row, is_certain, ..base }
}

/// True if others use the device, next to nothing is free, and the message has no limit.
fn is_held_by_others(numbers: &MessageNumbers) -> bool {
    let has_limit = numbers.allowed.is_some() || numbers.printed.refused_by_pool || numbers.printed.exceeds_reserve;
    !has_limit && numbers.is_outside_significant() && numbers.has_little_free()
}

/// For a caching allocator whose message does not have the free memory of the device.
fn without_free(numbers: &MessageNumbers, request: ApproxBytes) -> Option<Conclusion> {
    let (capacity, tensors, unallocated) = (numbers.capacity?, numbers.tensors?, numbers.unallocated?);
    let fits = capacity.covers(tensors.saturating_add(request));
    let (row, verdict) = if !fits.is_likely() {
        ("without-free-capacity", Verdict::Capacity)
    } else if unallocated.covers(request).is_likely() && !numbers.is_cache_full(request) {
        ("without-free-fragmentation", Verdict::Fragmentation)
    } else {
        return Some(Conclusion::new("without-free", Verdict::Unknown, false));
    };
    Some(Conclusion {
        within_rounding: fits.is_within_rounding(),
        settings_can_help: (verdict == Verdict::Capacity).then_some(false),
        ..Conclusion::new(row, verdict, fits == Likelihood::No)
    })
}

/// For the backend cudaMallocAsync: the driver keeps the cache, and the message does not have its size.
fn asynchronous(numbers: &MessageNumbers, request: ApproxBytes, free: ApproxBytes) -> Option<Conclusion> {
    let needed = numbers.tensors?.saturating_add(request);
    let [limit, device] = [numbers.allowed, numbers.capacity]
        .map(|room| room.map(|room| room.covers(needed)).filter(|covers| !covers.is_likely()));
    let (row, verdict, covers) = if let Some(covers) = limit {
        ("async-limit", Verdict::MemoryLimit, covers)
    } else if free.covers(request) == Likelihood::Yes {
        return Some(Conclusion::new("async-refused", Verdict::MemoryLimit, false));
    } else if let Some(covers) = device {
        ("async-capacity", Verdict::Capacity, covers)
    } else {
        return Some(Conclusion::new("async-unknown", Verdict::Unknown, false));
    };
    Some(Conclusion {
        within_rounding: covers.is_within_rounding(),
        settings_can_help: Some(false),
        ..Conclusion::new(row, verdict, covers == Likelihood::No)
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::table::conclusion_row;

    #[test]
    fn every_row_that_is_chosen_is_in_the_table() {
        let words = include_str!("conclusion.rs").split('"');
        let names: Vec<&str> = words.filter(|word| word.contains('-') && !word.contains(' ')).collect();
        assert!(names.len() > 15, "{names:?}");
        for name in names.into_iter().chain(["metal", "expandable", "incomplete", "fragmentation", "capacity"]) {
            assert_eq!(conclusion_row(name).name, name);
        }
    }
}
