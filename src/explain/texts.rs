//! Names for the numbers of a message of PyTorch's allocator, for the conclusions of the table.

use std::collections::BTreeMap;

use itertools::Itertools as _;

use super::numbers::MessageNumbers;
use super::standard_advice::StandardAdvice;
use crate::allocator::verdict::{ApproxBytes, Likelihood, USUAL_OUTSIDE, Verdict, format_approx};
use crate::base::units::{counted, size};
use crate::explain::table::PrintedNumbers;

/// Every name that holds for `numbers`, whose verdict is `verdict`.
pub(super) fn texts(
    numbers: &MessageNumbers,
    verdict: Verdict,
    settings_can_help: Option<bool>,
) -> PrintedNumbers<'static> {
    let mut texts: BTreeMap<&'static str, String> = BTreeMap::new();
    let printed = numbers.printed.figures.iter().map(|(name, (_, amount))| (*name, amount));
    texts.extend(printed.map(|(name, amount)| (name, size(amount.bytes))));
    let request = numbers.request.unwrap_or_default();
    let memory = numbers.memory_at_failure(request, numbers.free.unwrap_or_default());
    let cached = numbers.unallocated.unwrap_or_default();
    let all_free = memory.device_free.saturating_add(cached);
    let covers = |more: ApproxBytes| all_free.saturating_add(more).covers(memory.segment).is_likely();
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
    if let Some(limit) = numbers.printed.figure("block_limit") {
        texts.insert("block_limit", limit.text.clone());
    }
    let needed = memory.needed_from_device();
    let requested = texts.get("requested").cloned().unwrap_or_default();
    let granules = format!("{} (whole granules of an expandable segment, for {requested})", format_approx(needed));
    texts.insert("needed", if needed == request { requested } else { granules });
    texts.extend(known(numbers).map(|known| ("known", known)));
    let standard = |verdict| StandardAdvice::for_verdict(verdict).text.to_owned();
    texts.insert("standard", standard(verdict));
    texts.insert("non_pytorch", standard(Verdict::NonPytorch));
    texts.insert("fragmentation", standard(Verdict::Fragmentation));
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

    let releases = numbers.printed.releases;
    let is_cache_full = numbers.is_cache_full(request) && covers(ApproxBytes::default());
    let may_suffice = numbers.min_request().is_some_and(|request| all_free.covers(request) != Likelihood::No);
    let others = memory.other_pool.saturating_add(memory.outside);
    let is_context = numbers.reclaimable_outside.is_some_and(|outside| outside.bytes == 0);
    let parts = numbers.printed.figure("other").zip(numbers.printed.figure("allocated"));
    let flags = [
        ("cut_by_2_3", numbers.capacity.is_none() && releases.is_some_and(|releases| releases.to_string() == "2.3")),
        ("too_large", numbers.exceeds_capacity(memory.segment)),
        ("cache_full", is_cache_full),
        ("with_others", memory.suffices_with_device(cached.saturating_add(others)).is_likely()),
        ("context", is_context && numbers.outside.is_some_and(covers)),
        ("maybe", !is_cache_full && may_suffice),
        ("short", !is_cache_full && !may_suffice),
        ("own_suffices", memory.suffices_with_device(memory.own.all).is_likely()),
        ("device_covers", memory.device_free.covers(request).is_likely()),
        ("within_limit", numbers.exceeds_limit(request).is_some()),
        ("over_limit", numbers.exceeds_limit(request).is_some_and(Likelihood::is_likely)),
        ("settings_help", settings_can_help == Some(true)),
        ("others_lead", parts.is_some_and(|(other, allocated)| other.bytes > allocated.bytes)),
        ("expandable_on", numbers.printed.expandable == Some(true)),
        ("expandable_none", numbers.printed.expandable == Some(false)),
        ("expandable_old", releases.and_then(|releases| releases.last).is_some_and(|last| last < (2, 1))),
    ];
    texts.extend(flags.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| (name, String::new())));
    PrintedNumbers::from_texts(texts)
}

/// The numbers of a message that is cut.
fn known(numbers: &MessageNumbers) -> Option<String> {
    let known = [
        ("requested", "was requested"),
        ("free", "was free"),
        ("allocated", "was allocated by PyTorch"),
        ("reserved", "was reserved by PyTorch"),
    ];
    let known = known.iter().filter_map(|(name, verb)| {
        let amount = numbers.printed.figure(name)?;
        Some(format!("{} {verb}", size(amount.bytes)))
    });
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
    if let Some(outside) = numbers.this_process_outside.filter(|outside| outside.bytes > 0) {
        users.push(format!("this process itself: {}", format_approx(outside)));
    }
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
    if numbers.printed.processes.is_empty() && !texts.contains_key("own_outside") {
        texts.insert("nobody", String::new());
    }
}
