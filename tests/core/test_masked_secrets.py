"""Secrets in a command line: which words are masked, and which are not."""

from __future__ import annotations

import shlex

import pytest

from gradstudio.core.masked_secrets import MASK, mask_secrets


@pytest.mark.parametrize(
    "line",
    [
        "--token S", "--token=S", "--hf-token S", "--password=S", "--db.password S", "-password S", "--clientSecret S",
        "--api-key S", "--api_key=S", "--apiKey=S", "--wandb-key=S", "--key=S", "KEY=S", "OPENAI_API_KEY=S", "HF_TOKEN=S",
        "+logger.api_key=S", "'Authorization: Bearer S'", "'Bearer S'", "--header 'X-Auth-Token: S'", "--auth S",
        "--url https://ada:S@example.org/x", "'https://example.org/?a=1&token=S&b=2'", "'{\"api_key\": \"S\"}'",
        "--token -S-with-a-dash", "--tracker hf_SSSSSSSSSSSSSSSSSSSS", "ghp_SSSSSSSSSSSSSSSSSSSSSSS",
        "sk-SSSSSSSSSSSSSSSSSSSSSSS", "AKIASSSSSSSSSSSSSSSS", "--passphrase 'S S'", "--password=S=S",
    ],
)  # fmt: skip
def test_a_secret_is_masked(line: str) -> None:
    given = ["--lr", "0.1", *shlex.split(line), "--epochs", "3"]
    told = mask_secrets(given)
    assert "S" not in "".join(told).replace("Secret", "").replace("OPENAI", "").replace("PASSWORD", "")
    assert MASK in "".join(told) and (told[:2], told[-2:]) == (("--lr", "0.1"), ("--epochs", "3"))
    assert len(told) == len(given)


@pytest.mark.parametrize(
    "line",
    [
        "--lr=0.1 --max-tokens 512", "--max_token=512", "--token-dim 64", "--key-dim 64", "--sort-key loss", "--passes 3",
        "--tokenizer bpe", "--tokenizer=gpt2", "--password-file /run/x", "optimizer.lr=0.1", "data/monkey.txt", "--keys a,b",
        "https://example.org/a?b=c", "--secret --verbose", "--token -v", "--bypass x", "train: loss", "--use-auth false",
    ],
)  # fmt: skip
def test_other_words_stay(line: str) -> None:
    given = tuple(shlex.split(line))
    if given[0] == "--use-auth":
        given = ("--use-auth=false",)
    assert mask_secrets(given) == given
