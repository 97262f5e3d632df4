import asyncio
import threading
import time

import pytest

from day0.errors import EnvironmentFault, InputError
from day0.runtime.batch import NO_TOKEN, Request, SamplingParams
from day0.runtime.engine.sequence import NotFinite
from day0.runtime.engine.worker import EngineFailed, EngineWorker, NotAccepting, WorkerState


def request(name: str, *prompt: int, tokens: int = 5) -> Request:
    return Request(name, prompt, SamplingParams(max_tokens=tokens))


async def started(engine) -> EngineWorker:
    worker = EngineWorker(lambda: engine)
    worker.start()
    await asyncio.wait_for(worker.ready.wait(), 5)
    return worker


async def until(holds, seconds: float = 2.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.002)


async def tokens_of(worker: EngineWorker, wanted: Request) -> list[int]:
    return [output.token_id async for output in worker.generate(wanted)]


def run(main) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def test_many_requests_at_once_each_get_their_own_tokens(scripted_engine):
    async def main():
        worker = await started(scripted_engine(max_running=7))
        wanted = [request(f"r{i}", i, 1000 * i + 3, tokens=1 + i % 13) for i in range(63)]
        answers = await asyncio.gather(*(tokens_of(worker, one) for one in wanted))
        for one, tokens in zip(wanted, answers, strict=True):
            assert tokens == [scripted_engine.token(one, number) for number in range(one.params.max_tokens)]
        assert worker.num_streaming == 0
        worker.stop()
        assert worker.join(5)

    run(main())


def test_leaving_the_iterator_aborts_before_the_next_step(scripted_engine):
    async def main():
        engine = scripted_engine(delay=0.02)
        worker = await started(engine)
        stream = worker.generate(request("gone", 1, tokens=200))
        await anext(stream)
        await stream.aclose()
        steps = engine.steps
        await until(lambda: engine.aborted == ["gone"])
        assert engine.steps <= steps + 1, "the step under way may end, no other may begin"
        await until(lambda: worker.stats.pages_free == worker.stats.pages_total)
        worker.stop()

    run(main())


def test_a_cancelled_consumer_frees_its_request(scripted_engine):
    async def main():
        engine = scripted_engine(delay=0.005)
        worker = await started(engine)
        task = asyncio.create_task(tokens_of(worker, request("gone", 1, tokens=200)))
        await until(lambda: engine.generated.get("gone", 0) > 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not engine.has_work())
        assert await tokens_of(worker, request("next", 2, tokens=2)) == [2, 3]
        worker.stop()

    run(main())


def test_a_refused_request_takes_the_others_of_its_call_with_it(scripted_engine):
    async def main():
        engine = scripted_engine(delay=0.005)
        worker = await started(engine)
        with pytest.raises(InputError, match="empty"):
            await worker.open([request("a", 1, tokens=50), request("b", tokens=50)])
        await until(lambda: not engine.has_work())
        assert engine.aborted[0] == "a"
        assert worker.num_streaming == 0
        assert worker.state is WorkerState.READY
        worker.stop()

    run(main())


def test_a_full_queue_is_told_and_does_not_end_the_worker(scripted_engine):
    async def main():
        engine = scripted_engine(delay=0.005, max_running=1, refuse=EnvironmentFault("the queue is full"))
        worker = await started(engine)
        running = await worker.open([request("first", 1, tokens=100)])
        with pytest.raises(EnvironmentFault, match="full"):
            await worker.open([request("second", 1)])
        running.close()
        assert len(await tokens_of(worker, request("third", 1))) == 5
        worker.stop()

    run(main())


def test_one_of_several_can_be_given_up(scripted_engine):
    async def main():
        engine = scripted_engine(delay=0.005)
        worker = await started(engine)
        stream = await worker.open([request("kept", 1, tokens=20), request("dropped", 2, tokens=200)])
        seen = {"kept": 0, "dropped": 0}
        async for output in stream:
            seen[output.request_id] += 1
            if output.request_id == "dropped":
                stream.cancel(["dropped"])
        assert seen == {"kept": 20, "dropped": 1}
        await until(lambda: not engine.has_work())
        worker.stop()

    run(main())


def test_a_fault_in_a_step_is_told_to_everyone_in_flight(scripted_engine):
    async def main():
        worker = await started(scripted_engine(fail_at=3))
        answers = await asyncio.gather(
            *(tokens_of(worker, request(f"r{i}", i, tokens=9)) for i in range(1, 4)), return_exceptions=True
        )
        assert all(isinstance(answer, EngineFailed) for answer in answers)
        assert "the scripted fault" in str(answers[0])
        assert worker.state is WorkerState.FAILED and not worker.healthy
        assert isinstance(worker.failure, RuntimeError)
        assert "conftest.py" in worker.failure_traceback
        assert worker.ended.is_set()
        with pytest.raises(NotAccepting, match="unhealthy"):
            await worker.open([request("late", 1)])

    run(main())


def test_a_request_that_cannot_be_answered_fails_alone(scripted_engine):
    async def main():
        engine = scripted_engine(delay=0.005, not_finite=13)
        worker = await started(engine)
        beside = asyncio.create_task(tokens_of(worker, request("beside", 100, tokens=20)))
        stream = await worker.open([request("broken", 10, tokens=9), request("same call", 50, tokens=200)])
        seen = []
        with pytest.raises(NotFinite):
            async for output in stream:
                seen.append(output.token_id)
        assert 12 in seen and NO_TOKEN not in seen
        stream.close()
        assert len(await beside) == 20
        await until(lambda: not engine.has_work())
        assert engine.aborted == ["same call"]
        assert worker.healthy
        worker.stop()

    run(main())


def test_an_engine_that_does_not_load_is_a_failure_with_its_reason():
    async def main():
        def load():
            raise InputError("no such shard", where="model.safetensors")

        worker = EngineWorker(load)
        worker.start()
        await worker.ready.wait()
        assert worker.state is WorkerState.FAILED
        assert isinstance(worker.failure, InputError)

    run(main())


def test_nothing_is_taken_while_loading(scripted_engine):
    async def main():
        gate = threading.Event()

        def load():
            gate.wait(5)
            return scripted_engine()

        worker = EngineWorker(load)
        worker.start()
        with pytest.raises(NotAccepting, match="loading"):
            await worker.open([request("early", 1)])
        gate.set()
        await worker.ready.wait()
        assert len(await tokens_of(worker, request("now", 1))) == 5
        worker.stop()

    run(main())


def test_drain_finishes_what_runs_and_takes_nothing_new(scripted_engine):
    async def main():
        worker = await started(scripted_engine(delay=0.005, max_running=1))
        running = await worker.open([request("a", 1, tokens=20), request("waiting", 2, tokens=20)])
        worker.drain()
        with pytest.raises(NotAccepting, match="draining"):
            await worker.open([request("late", 1)])
        outputs = [output async for output in running]
        assert [output.request_id for output in outputs] == ["a"] * 20 + ["waiting"] * 20
        await worker.ended.wait()
        assert worker.state is WorkerState.STOPPED and worker.failure is None
        assert worker.join(5)

    run(main())


def test_drain_with_nothing_to_do_ends_at_once(scripted_engine):
    async def main():
        worker = await started(scripted_engine())
        worker.drain()
        await asyncio.wait_for(worker.ended.wait(), 2)

    run(main())


def test_stop_tells_those_in_flight(scripted_engine):
    async def main():
        worker = await started(scripted_engine(delay=0.01))
        stream = await worker.open([request("a", 1, tokens=200)])
        await anext(stream)
        worker.stop()
        with pytest.raises(NotAccepting, match="stopped"):
            async for _ in stream:
                pass

    run(main())


def test_an_idle_worker_sleeps(scripted_engine):
    async def main():
        worker = await started(scripted_engine())
        await tokens_of(worker, request("a", 1))
        before, quiet = time.thread_time(), time.process_time()
        await asyncio.sleep(0.3)
        others = (time.process_time() - quiet) - (time.thread_time() - before)
        assert others < 0.05, f"the engine's thread used {others:.3f} s of CPU while there was nothing to do"
        worker.stop()

    run(main())


def test_progress_is_dated_by_step(scripted_engine):
    async def main():
        worker = await started(scripted_engine(delay=0.01))
        stream = await worker.open([request("a", 1, tokens=100)])
        await anext(stream)
        first = worker.last_progress
        await anext(stream)
        await anext(stream)
        assert worker.last_progress > first
        stream.close()
        await until(lambda: worker.stats.running == 0)
        resting = worker.last_progress
        await asyncio.sleep(0.05)
        assert worker.last_progress == resting
        worker.stop()

    run(main())


def test_an_idle_engine_that_lost_what_it_needs_ends_the_worker(scripted_engine):
    async def main():
        engine = scripted_engine()
        worker = await started(engine)
        engine.gone = EnvironmentFault("rank 1 of 2 was killed by SIGKILL")
        engine.wake()
        await asyncio.wait_for(worker.ended.wait(), 5)
        assert worker.state is WorkerState.FAILED
        assert worker.failure is engine.gone
        assert engine.closed

    run(main())
