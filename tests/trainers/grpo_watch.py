"""Runs inside TRL's environment, for the probes of GRPO: a trainer that keeps what it trains on."""

from typing import Any

from trl import GRPOConfig, GRPOTrainer


class Watched(GRPOTrainer):
    """Keeps what it trains on, as the trainer itself made it."""

    batches: list[dict[str, Any]] = []  # noqa: RUF012

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        out = super()._generate_and_score_completions(inputs)
        loss_mask = out["completion_mask"] * out["tool_mask"]
        self.batches.append(
            {
                "prompts": [i[m.bool()].tolist() for i, m in zip(out["prompt_ids"], out["prompt_mask"], strict=True)],
                "completions": [
                    i[m.bool()].tolist() for i, m in zip(out["completion_ids"], out["completion_mask"], strict=True)
                ],
                "trained": [
                    [(at, int(i[at])) for at in m.nonzero().flatten().tolist()]
                    for i, m in zip(out["completion_ids"], loss_mask, strict=True)
                ],
                "advantages": out["advantages"].tolist(),
            }
        )
        return out


def settings(out: str, *, max_completion_length: int) -> GRPOConfig:
    return GRPOConfig(
        output_dir=out + ".d",
        max_steps=3,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=max_completion_length,
        learning_rate=2e-4,
        temperature=1.0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        gradient_checkpointing=False,
        bf16=False,
        seed=0,
    )
