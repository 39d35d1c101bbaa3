"""What acknowledgements mean: which messages they end, prolong or give back, and what happens when a message ends.

Plain acknowledgements come as runs, everything else one by one. A confirmation is asked for by a reply subject; it
goes out when the operations of this call are durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnats.jetstream.api import advisories
from tnats.jetstream.consumer import extensions, state
from tnats.jetstream.consumer.ack_timers import AckTimers
from tnats.jetstream.consumer.acks import Ack, AckRun, Place, Word
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig
from tnats.jetstream.consumer.core import Core
from tnats.jetstream.consumer.letters import Letter
from tnats.jetstream.consumer.state import stretches
from tnats.jetstream.consumer.subject_bound import SubjectBound


class Acknowledgements:
    """See the module's text."""

    def __init__(self, core: Core, timers: AckTimers, bound: SubjectBound) -> None:
        self._core = core
        self._timers = timers
        self._bound = bound
        self._sample_percent = 0
        self._sample_credit = 0

    def use(self, config: ConsumerConfig) -> None:
        """Take over a configuration."""
        self._sample_percent = min(int(config.sample_freq.removesuffix("%") or "0"), 100)

    # ------------------------------------------------------------------ plain ones

    def take_run(self, run: AckRun, now_ns: int) -> None:
        """Plain acknowledgements."""
        core = self._core
        if core.config.ack_policy == AckPolicy.EXPLICIT:
            pending = core.state.pending.among(run.seqs, run.consumer_seqs)
            if len(pending) < len(run.seqs):
                self._finish_late(run.seqs, pending)
            if self._sample_percent:
                for seq, consumer_seq in zip(run.seqs, run.consumer_seqs, strict=True):
                    acked = core.state.pending.among([seq], [consumer_seq])
                    if acked:
                        self._sample(seq, consumer_seq, now_ns)
                        self._finish(acked, now_ns)
            else:
                self._finish(pending, now_ns)
        elif core.tracks_acks:
            delivered = [place for place in zip(run.seqs, run.consumer_seqs, strict=True) if self._is_known(*place)]
            if delivered:
                self.take_up_to(max(delivered)[0], now_ns)
        if run.replies:
            core.effects.acked_replies += [reply for *place, reply in run.replies if self._is_known(*place)]

    def take_up_to(self, seq: int, now_ns: int) -> None:
        """One acknowledgement of all messages up to `seq`."""
        core = self._core
        acked = core.state.pending.seqs_up_to(seq)
        if acked:
            self._forget(acked)
            core.op(state.ACKED_ALL, seq)
            core.effects.done += acked
            core.last_acked_ns = now_ns + core.wall_offset_ns

    def confirm(self, seq: int, consumer_seq: int, reply: bytes) -> None:
        """Answer, when what was said is durable. Made-up places get no answer: it would say that something was done."""
        if reply and self._is_known(seq, consumer_seq):
            self._core.effects.acked_replies.append(reply)

    def _is_known(self, seq: int, consumer_seq: int) -> bool:
        """Whether this was delivered; and if it was before a reset, the message was not delivered again since."""
        current = self._core.state
        if seq > current.delivered_stream_seq or not 0 < consumer_seq <= current.delivered_consumer_seq:
            return False
        if self._core.config.ack_policy == AckPolicy.ALL:  # it is about all below it, too
            first = current.pending.first()
            return first is None or seq < first[0] or consumer_seq >= first[1]
        at = current.pending.find(seq)
        return at < 0 or consumer_seq >= current.pending.consumer_seq_at(at)

    def _finish(self, acked: list[int], now_ns: int) -> None:
        """These messages, which are pending, are done with."""
        if not acked:
            return
        core = self._core
        self._forget(acked)
        for first, count in stretches(acked):
            core.op(state.ACKED, first, count)
        core.effects.done += acked
        core.last_acked_ns = now_ns + core.wall_offset_ns

    def _finish_late(self, seqs: Sequence[int], pending: Sequence[int]) -> None:
        """Done with when their deliveries were used up already, or twice: they need not stay for this consumer.

        A stream by interest, or a work queue, lets go of them; but not of a message that becomes a dead letter.
        """
        core = self._core
        current, known = core.state, dict.fromkeys(pending)
        for seq in seqs:
            if seq in known or seq > current.delivered_stream_seq or seq in current.held or seq in current.outbox:
                continue
            if seq in current.pending:  # it was delivered again, after a reset
                continue
            subject = core.index.subject_of(seq)
            if subject is not None and core.wants(subject):
                core.effects.done.append(seq)

    def _forget(self, seqs: list[int]) -> None:
        """Pending messages are about to be so no more."""
        ready = self._timers.ready
        if ready:
            for seq in seqs:
                ready.pop(seq, None)
        if self._bound.max_pending:
            for seq in seqs:
                self._bound.uncount(seq)

    def end_pending(self, seq: int, kind: int) -> None:
        """One pending message is so no more, by an operation of this kind."""
        self._forget([seq])
        self._core.op(kind, seq)

    def gone(self, seq: int) -> None:
        """A delivered message is gone from the stream."""
        if seq in self._core.state.pending:
            self.end_pending(seq, state.SKIPPED)
        elif seq in self._core.state.held:
            self._bound.drop(seq)

    def purged(self, begin_seq: int) -> None:
        """All messages below `begin_seq` are gone from the stream."""
        self._forget(self._core.state.pending.seqs_up_to(begin_seq - 1))
        self._core.op(state.PURGED, begin_seq)

    def _sample(self, seq: int, consumer_seq: int, now_ns: int) -> None:
        core = self._core
        at = core.state.pending.find(seq)
        self._sample_credit += self._sample_percent
        if self._sample_credit < 100:
            return
        self._sample_credit -= 100
        core.advise(
            advisories.consumer_ack_metric(
                core.identity,
                consumer_seq,
                seq,
                max(now_ns + core.wall_offset_ns - core.state.pending.sent_at(at), 1),
                core.state.deliveries_of(seq),
            )
        )

    # ------------------------------------------------------------------ the others

    def take(self, place: Place, ack: Ack, now_ns: int) -> None:
        """Anything that is said of one message."""
        seq = place.stream_seq
        if ack.word in (Word.ACK, Word.NEXT):
            self.take_run(AckRun(b"", [seq], [place.consumer_seq]), now_ns)
            return
        if ack.word == Word.TERM and self._core.config.ack_policy == AckPolicy.ALL:
            if self._is_known(seq, place.consumer_seq):  # it says of the messages before it what an ack does
                self.take_up_to(seq - 1, now_ns)
        if not self._core.state.pending.among([seq], [place.consumer_seq]):
            if ack.word == Word.TERM:
                self._finish_late([seq], ())
            return
        if ack.word == Word.NAK:
            self._give_back(place, ack, now_ns)
        elif ack.word == Word.PROGRESS:
            self._prolong(seq, now_ns)
        elif ack.word == Word.TERM:
            self._terminate(place, ack, now_ns)

    def _give_back(self, place: Place, ack: Ack, now_ns: int) -> None:
        core, seq = self._core, place.stream_seq
        core.advise(advisories.message_naked(core.identity, place.consumer_seq, seq, place.deliveries))
        self._timers.ready.pop(seq, None)
        if ack.delay_ns:
            self._timers.set(seq, now_ns + ack.delay_ns)
        elif not self.gives_up(seq, now_ns):
            self._timers.make_ready(seq)

    def _prolong(self, seq: int, now_ns: int) -> None:
        core = self._core
        self._timers.ready.pop(seq, None)
        self._timers.set(seq, now_ns + core.ack_wait_ns(core.state.deliveries_of(seq)))

    def _terminate(self, place: Place, ack: Ack, now_ns: int) -> None:
        core, seq = self._core, place.stream_seq
        reason = ack.rest.decode("utf-8", "replace")
        deliveries = core.state.deliveries_of(seq)
        self.end_pending(seq, state.ACKED)
        core.last_acked_ns = now_ns + core.wall_offset_ns
        core.advise(advisories.message_terminated(core.identity, place.consumer_seq, seq, deliveries, reason))
        if not self._write_letter(seq, reason or "terminated", deliveries, now_ns):
            core.effects.done.append(seq)

    # ------------------------------------------------------------------ no further deliveries

    def expire(self, now_ns: int) -> None:
        """Messages whose time is over are to be sent again, or given up."""
        for seq in self._timers.due(now_ns):
            if not self.gives_up(seq, now_ns):
                self._timers.make_ready(seq)

    def gives_up(self, seq: int, now_ns: int) -> bool:
        """Whether a message has used up its deliveries; it is then pending no more, and stays in the stream."""
        core = self._core
        deliveries = core.state.deliveries_of(seq)
        if core.config.max_deliver <= 0 or deliveries < core.config.max_deliver:
            return False
        self.end_pending(seq, state.GIVEN_UP)
        core.advise(advisories.max_deliveries(core.identity, seq, deliveries))
        self._write_letter(seq, "max deliveries", deliveries, now_ns)
        return True

    def _write_letter(self, seq: int, reason: str, deliveries: int, now_ns: int) -> bool:
        """Whether a message becomes a dead letter; its stream keeps it until that is stored."""
        core = self._core
        target = extensions.dead_letter_subject(core.config)
        if target and seq not in core.state.outbox:
            letter = Letter(seq, target, reason, deliveries, now_ns + core.wall_offset_ns)
            core.state.outbox[seq] = letter
            core.effects.letters.append(letter)
        return bool(target)
