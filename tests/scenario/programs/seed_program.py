"""The first program a newcomer writes: two steps, one run, one file."""

from seed_stand_ins import api_client, llm

from agent_run_ledger import LoopDetectorPolicy, RunLedger, Step  # noqa: F401 - a newcomer imports all three

ledger = RunLedger(
    run_id="financial-audit-pipeline-2026",
    db_path="./runs.db",
    policy=LoopDetectorPolicy(max_repetitions=3, threshold=0.92),
)


@ledger.step(name="fetch_quarterly_data")
def fetch_data(company_id: str):
    return api_client.get(f"/companies/{company_id}/financials")


@ledger.step(name="synthesize_report", depends_on=["fetch_quarterly_data"])
def synthesize_report(data: dict):
    return llm.invoke(f"Write up these figures for the board: {data}")


result = ledger.execute(company_id="acme-corp")
print("Execution Result:", result)
