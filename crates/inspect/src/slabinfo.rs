//! Slabs by cache: the named caches of the program, and the size classes of `malloc`.

use crate::decode::{u32_at, u64_at};
use crate::mem::Memory;
use crate::snapshot::Snapshot;
use memledger_abi::pool::{CLASS_POOL, POOL_FREE, POOL_NAME_MAX, PoolRecord};
use memledger_formats::slabinfo::Cache;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Most named caches that are believed.
const MAX_POOLS: usize = 1 << 16;
/// Pages of a unit.
const UNIT_PAGES: u64 = 16;

/// Slabs of one cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlabSum {
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots of a slab.
    pub slots: u32,
    /// Units (64 KiB) of a slab.
    pub units: u32,
    /// Slabs.
    pub slabs: u64,
    /// Slabs with live objects.
    pub active_slabs: u64,
    /// Live objects.
    pub active: u64,
}

/// A named cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolInfo {
    /// Its number, from 1.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots of a slab.
    pub slots: u32,
    /// Units of a slab.
    pub units: u32,
}

/// Slabs by class and number of the named cache; both as in the unit table, the number 0 for classes.
pub(crate) type Slabs = BTreeMap<(u8, u16), SlabSum>;

/// The named caches, newest first. What cannot be read is counted.
pub(crate) fn pools(mem: &dyn Memory, head_at: u64, unread: &mut u64) -> Vec<PoolInfo> {
    type R = PoolRecord;
    let mut out = Vec::new();
    if head_at == 0 {
        return out;
    }
    let mut head = [0; 8];
    if mem.read(head_at, &mut head).is_err() {
        *unread += 1;
        return out;
    }
    let mut at = u64_at(&head, 0);
    for _ in 0..MAX_POOLS {
        if at == 0 {
            return out;
        }
        let mut b = [0; size_of::<R>()];
        if mem.read(at, &mut b).is_err() {
            break;
        }
        let len = (u32_at(&b, offset_of!(R, name_len)) as usize).min(POOL_NAME_MAX);
        let name = &b[offset_of!(R, name)..][..len];
        if u32_at(&b, offset_of!(R, state)) != POOL_FREE {
            out.push(PoolInfo {
                id: u32_at(&b, offset_of!(R, id)),
                name: String::from_utf8_lossy(name).into_owned(),
                slot_bytes: u64_at(&b, offset_of!(R, slot_bytes)),
                slots: u32_at(&b, offset_of!(R, slots)),
                units: u32_at(&b, offset_of!(R, units)),
            });
        }
        at = u64_at(&b, offset_of!(R, next));
    }
    *unread += 1;
    out
}

/// The caches of a snapshot, as `/proc/slabinfo` lists a kernel's: named caches, newest first, then the size classes of `malloc`, largest
/// first, each with all its slabs. Those without slabs are there if they have a name.
pub fn slabinfo(snapshot: &Snapshot) -> Vec<Cache> {
    let mut out = Vec::new();
    for ledger in &snapshot.ledgers {
        for pool in &ledger.pools {
            let key = (CLASS_POOL, u16::try_from(pool.id).unwrap_or(0));
            let empty = SlabSum {
                slot_bytes: pool.slot_bytes,
                slots: pool.slots,
                units: pool.units,
                ..SlabSum::default()
            };
            let sum = ledger.slabs.get(&key).copied().unwrap_or(empty);
            out.push(row(pool.name.clone(), &sum));
        }
    }
    let mut classes: BTreeMap<u64, SlabSum> = BTreeMap::new();
    for ledger in &snapshot.ledgers {
        for (_, sum) in ledger
            .slabs
            .iter()
            .filter(|((class, _), _)| *class != CLASS_POOL)
        {
            let all = classes.entry(sum.slot_bytes).or_default();
            *all = SlabSum {
                slabs: all.slabs + sum.slabs,
                active_slabs: all.active_slabs + sum.active_slabs,
                active: all.active + sum.active,
                ..*sum
            };
        }
    }
    let named = classes.iter().rev();
    out.extend(named.map(|(bytes, sum)| row(format!("malloc-{bytes}"), sum)));
    out
}

fn row(name: String, sum: &SlabSum) -> Cache {
    Cache {
        name,
        active_objs: sum.active,
        num_objs: sum.slabs.saturating_mul(u64::from(sum.slots)),
        objsize: sum.slot_bytes,
        objperslab: u64::from(sum.slots),
        pagesperslab: u64::from(sum.units) * UNIT_PAGES,
        active_slabs: sum.active_slabs,
        num_slabs: sum.slabs,
        ..Cache::default()
    }
}
