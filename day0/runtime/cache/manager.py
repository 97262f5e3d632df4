"""Pages, state slots and their tensors under one roof: what a sequence holds is taken, shared and given back here."""

from __future__ import annotations

from collections.abc import Sequence

from day0.runtime.cache.lease import Lease, StaleLease
from day0.runtime.cache.pages import PageAllocator
from day0.runtime.cache.prefix import NOTHING_KNOWN, PageNames, Prefix, Snapshots
from day0.runtime.cache.states import NO_SLOT, SlotAllocator
from day0.runtime.cache.storage import CacheStorage


class CacheManager:
    """Lends pages and a state slot to each sequence, and finds what sequences have in common.

    `snapshots` None means that nothing is found again. With `debug`, what is given up is filled with NaN, and leases
    are checked before they are used.
    """

    def __init__(
        self,
        storage: CacheStorage,
        pages: PageAllocator,
        slots: SlotAllocator,
        debug: bool = False,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.storage = storage
        self.pages = pages
        self.slots = slots
        self.debug = debug
        self.snapshots = snapshots

    @property
    def capacity(self) -> int:
        """Tokens that all pages together hold."""
        return self.pages.num_pages * self.pages.page_size

    def match(self, names: PageNames, token_ids: Sequence[int]) -> Prefix:
        """The longest known beginning of a sequence, its last token left out: that one has logits to give.

        Of a model with states it ends where a snapshot was taken; stops are set where the pages known end and where
        the sequence's own do.
        """
        if self.snapshots is None or (self.slots.num_slots and self.storage.slot_bytes > self.snapshots.budget):
            return NOTHING_KNOWN
        size = self.pages.page_size
        whole = (len(token_ids) - 1) // size
        pages: list[int] = []
        usable, snapshot = 0, None
        for number in range(whole):
            name = names.name(token_ids, number)
            page = self.pages.find(name)
            if page is None:
                break
            pages.append(page)
            if self.slots.num_slots == 0:
                usable = len(pages)
            elif name in self.snapshots:
                usable, snapshot = len(pages), self.snapshots.get(name)
        stops = {len(pages) * size, whole * size} if self.slots.num_slots else set()
        return Prefix(
            tuple(pages[:usable]),
            usable * size,
            snapshot,
            tuple(sorted(stop for stop in stops if stop > usable * size)),
        )

    def can_open(self, tokens: int, prefix: Prefix = NOTHING_KNOWN, reserve: int = 0) -> bool:
        """Whether a new sequence can have a state slot and room for `tokens` tokens, `reserve` pages left over."""
        has_slot = self.slots.num_slots == 0 or self.slots.num_free > 0
        idle = sum(self.pages.is_idle(page) for page in prefix.pages)
        needed = self.pages.pages_for(tokens) - len(prefix.pages) + idle
        return has_slot and needed + reserve <= self.pages.num_free

    def open(self, prefix: Prefix = NOTHING_KNOWN) -> Lease:
        """A new sequence with what is known of it: shared pages, and a state slot that is zero or as it was there."""
        lease = self._new_lease()
        self.pages.hold(prefix.pages)
        lease.add(prefix.pages, [self.pages.generations[page] for page in prefix.pages])
        lease.named = len(prefix.pages)
        if lease.state_slot != NO_SLOT and prefix.snapshot is not None:
            self.storage.restore_state(lease.state_slot, prefix.snapshot)
        return lease

    def can_grow(self, lease: Lease, tokens: int) -> bool:
        """Whether a sequence can be given room for `tokens` tokens in all."""
        return self.pages.pages_for(tokens) - len(lease.pages) <= self.pages.num_free

    def grow(self, lease: Lease, tokens: int) -> None:
        """Lend pages until a sequence has room for `tokens` tokens."""
        lease.require()
        missing = self.pages.pages_for(tokens) - len(lease.pages)
        if missing <= 0:
            return
        pages, lost = self.pages.take(missing)
        if self.snapshots is not None:
            for name in lost:
                self.snapshots.drop(name)
        if self.debug:
            self.storage.poison_pages(pages)
        lease.add(pages, [self.pages.generations[page] for page in pages])

    def commit(self, lease: Lease, names: PageNames, token_ids: Sequence[int], computed: int, keep_state: bool) -> None:
        """Let others find the pages that are full after `computed` tokens, and with `keep_state` the states there."""
        if self.snapshots is None:
            return
        full = computed // self.pages.page_size
        for number in range(lease.named, full):
            self.pages.name(lease.pages[number], names.name(token_ids, number))
        lease.named = max(lease.named, full)
        if keep_state and computed == full * self.pages.page_size:
            name = names.name(token_ids, full - 1)
            if name not in self.snapshots:
                self.snapshots.put(name, self.storage.snapshot_state(lease.state_slot))

    def fork(self, lease: Lease, computed: int) -> Lease:
        """A second sequence that goes on after the first `computed` tokens of this one, whatever either does then.

        Full pages are shared, the last one and the state are copied. Needs a state slot and a page.
        """
        self.check(lease)
        full = computed // self.pages.page_size
        copy = self._new_lease()
        shared = lease.pages[:full]
        self.pages.hold(shared)
        copy.add(shared, lease.generations[:full])
        copy.named = min(lease.named, full)
        if computed > copy.capacity:
            self.grow(copy, computed)
            self.storage.copy_page(lease.pages[full], copy.pages[full])
        if copy.state_slot != NO_SLOT:
            self.storage.copy_state(lease.state_slot, copy.state_slot)
        return copy

    def check(self, lease: Lease) -> None:
        """Raise StaleLease if anything the lease names has changed hands since it was lent."""
        for page, generation in zip(lease.pages, lease.generations, strict=True):
            if self.pages.generations[page] != generation:
                raise StaleLease(f"page {page} has changed hands since it was lent")
        slot = lease.state_slot
        if slot != NO_SLOT and self.slots.generations[slot] != lease.slot_generation:
            raise StaleLease(f"state slot {slot} has changed hands since it was lent")

    def close(self, lease: Lease, keep: bool = True) -> None:
        """Take back everything a sequence holds. `keep` False: what it computed is not to be found again."""
        pages, slot = lease.end()
        if not keep:
            for name in self.pages.forget(pages):
                if self.snapshots is not None:
                    self.snapshots.drop(name)
        given_up = self.pages.release(pages)
        self.slots.release(slot)
        if self.debug:
            self.storage.poison_pages(given_up)
            if slot != NO_SLOT:
                self.storage.poison_state(slot)

    def _new_lease(self) -> Lease:
        slot = self.slots.take()
        if slot == NO_SLOT:
            return Lease(self.pages.page_size, NO_SLOT, 0)
        self.storage.reset_state(slot)
        return Lease(self.pages.page_size, slot, self.slots.generations[slot])
