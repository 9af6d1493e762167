"""Tau-bench's own reward over episodes, given as JSON on stdin: `taubench_probe.py FOLDER DOMAIN`.

Each episode is `{"index": of the test, "actions": [[name, arguments], …]}`; stdout has the reward of each. No model is asked: the
client that tau-bench imports is an empty module.
"""

import importlib
import json
import sys
import types

sys.modules["litellm"] = types.ModuleType("litellm")
sys.modules["litellm"].completion = None
folder, domain = sys.argv[1:]
sys.path.insert(0, folder)
base = importlib.import_module("tau_bench.envs.base")
package = f"tau_bench.envs.{domain}"
tests = importlib.import_module(f"{package}.tasks_test")
tasks = getattr(tests, "TASKS_TEST", None) or tests.TASKS


def score(episode):
    env = base.Env(
        importlib.import_module(f"{package}.data").load_data, importlib.import_module(f"{package}.tools").ALL_TOOLS,
        tasks, "", [], "human", "", task_index=episode["index"],
    )  # fmt: skip
    env.terminate_tools = ["transfer_to_human_agents"]
    for name, arguments in episode["actions"]:
        if name == "respond":
            env.actions.append(base.Action(name=name, kwargs=arguments))
        else:
            env.step(base.Action(name=name, kwargs=arguments))
    return env.calculate_reward().reward


json.dump([score(each) for each in json.load(sys.stdin)], sys.stdout)
