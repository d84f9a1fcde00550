"""The demo job: a real DP x TP x PP training job on CPU, and the injector that breaks one of its ranks.

Lives here: the job (`job`), what it is made of (`layout`, `groups`, `comms`, `model`, `pipeline`), the catalogue of
faults (`faults`), the injector that draws and applies one from outside (`injector`), a launcher that forks ranks
from one preloaded process (`launcher`), one-purpose jobs (`scenarios/`), plain user scripts (`workloads/`), and
folders that go with their command (`folders`). May be imported from it: `faults.CATALOGUE`, `injector.Injector`,
`plan.Truth`, `layout.Layout`, `folders.new_folder`. Nothing here imports a sensor, and no sensor imports this. It
implements the test bed of DESIGN section 6 ("lab" truth), no paper section.
"""
