"""The pages of ``dynatick ui``: HTML over the client, on loopback, for the person who started it.

Every view is a URL, and so is every filter. Ids, buckets and instants are URL-encoded. Times are UTC, or with ``tz``
those of a zone, which all links keep. With ``stack``, the name of a table or stack, only the pages of that one answer.

==============================  ================================================================================
``GET /``                       *Now*: state, minutes around now, past and next 24 h, first failures, next runs
``GET /timeline``               ``from``, ``to``, ``span=hour|day|week``
``GET /buckets/{bucket}``       the tasks of a bucket: ``2026-12-31T12:00Z`` or ``2026-12-31#12:00``; ``status``,
                                ``action``, ``prefix``, ``page``
``GET /failures``               ``last=24h``, ``to``: groups by error
``GET /failures/{fingerprint}`` a group: its actions, times, traces, tasks; ``last``, ``to``
``GET /failures/redrive``       the dry run for ``fingerprint``, ``last``; POST redrives, and answers with a job
``GET /search``                 ``q``: leads to the task, schedule or occurrence of an id, or to the tasks of a subject;
                                else looks for ids that begin so, from now on in both directions
``GET /tasks``                  ``prefix``, ``from`` and ``to``, ``status``, ``action``, ``schedule``, ``page``
``GET /tasks/change``           the dry run of ``do=redrive|cancel|reschedule`` for a filter of ``/tasks``; POST does it
``GET /tasks/selected``         the dry run of ``do`` for the tasks ``id``, several; POST does it for ``ids``
``GET /tasks/{id}``             a task; ``GET /tasks/{id}/row`` its whole row as JSON text
``POST /tasks/{id}/{change}``   ``redrive``, ``cancel``, ``reschedule`` (``due_at``), ``run-now``
``GET /jobs/{job}``             the progress of a change of many tasks, and of the runs that it began; POST ``…/abort``
``GET /changes``                what was changed by these pages, the latest first
``GET /schedules``              ``state``; ``GET /schedules/{id}`` one of them
``POST /schedules/{id}/…``      ``pause`` (``reason``), ``resume``, ``run-now``
``GET /actions``                ``last=24h``, ``to``; ``GET /actions/{action}`` one of them
``POST /actions/{action}/…``    ``pause`` (``reason``), ``resume``
``GET /ticks``                  ``last=6h``, ``to``
``GET /link``                   ``of``: leads from the address of a page to that of its range, which stays the same
``POST /pause``, ``/resume``    the installation; ``reason``
==============================  ================================================================================

A POST needs the form's field ``token``. It answers with a redirect (303) to a page that says what happened.

``data-testid``, on the elements that tests and scripts need:

==================  ==========================================================================================
every page          ``nav``, ``nav-now`` … ``nav-changes``, ``search`` (the form), ``search-input``, ``theme``,
                    ``zone-utc``, ``zone-local`` (the browser's), ``zone-chosen`` (another than UTC), ``copy-link``,
                    ``state`` (its ``data-state``: running, paused, late, none, unread), ``last-tick``,
                    ``updated``, ``trouble`` (why nothing can be read), ``read-only``,
                    ``notice`` (``role=status``: what a change did), ``problem`` (``role=alert``: what went wrong),
                    ``pause`` and ``resume`` (open the question), ``pause-reason``, ``confirm-pause``,
                    ``confirm-resume``
Now                 ``now``, ``due-now``, ``in-flight``, ``lateness``, ``failed-24h``, ``minutes`` (chart),
                    ``timeline``, ``failures``, ``next``, ``next-row``
Timeline            ``timeline``, ``hour`` (``data-hour``; ``data-loaded`` once its bars are there), ``day``, ``bar``
                    (a link to its bucket or hour), ``failed-row``, ``now-line``, ``scale``, ``tip`` (what a bar is),
                    ``earlier``, ``later``, ``span-hour``, ``span-day``,
                    ``span-week``, ``counts`` (the table behind the chart)
Bucket, Tasks       ``tasks``, ``task-row`` (``data-id``), ``task-link``, ``status-filter``, ``action-filter``,
                    ``prefix-filter``, ``apply``, ``next-page``, ``none``, ``select`` and ``select-all`` (of rows),
                    ``selected-redrive`` …, ``looked`` (``role=status``: from when to
                    when it has looked), ``go-on``, ``change-redrive``, ``change-cancel``,
                    ``change-reschedule``
Failures            ``failure-group`` (``data-count``), ``failure-error``, ``failure-new``, ``failure-sample``,
                    ``redrive-all``; of one group ``failure`` (``data-count``), ``failure-since``, ``failure-action``,
                    ``failure-variant``, ``failure-bar``, ``trace``
Dry run, job        ``dry-run`` (says what it would do), ``dry-run-count``, ``confirm``, ``keep``, ``job``
                    (``data-state``: running, done, failed, aborted), ``job-changed``, ``job-skipped``, ``job-runs``
                    (what came of the runs), ``abort``
Changes             ``changes``, ``change-row`` (``data-state``), ``job-link``, ``job-runs``, ``abort``
Task                ``task``, ``status``, ``explanation``, ``life`` (its events), ``event``, ``attempts``, ``attempt``,
                    ``payload``, ``result``, ``error``, ``trace``, ``redrive``, ``cancel``, ``reschedule``, ``run-now``
                    (each opens a question), ``confirm-redrive`` …, ``due-at``
Schedules           ``schedules``, ``schedule-row`` (``data-id``), ``schedule-link``, ``schedule``, ``strip``,
                    ``occurrence`` (``data-status``), ``missed``, ``missed-occurrence``, ``preview``, ``clock-change``,
                    ``schedule-pause``, ``schedule-resume``, ``schedule-run-now``, ``confirm-…``
Actions             ``actions``, ``action-row`` (``data-action``), ``action-link``, ``paused-since``; of one ``action``,
                    ``action-pause``, ``action-pause-reason``, ``action-resume``, ``confirm-…``; on every page
                    ``action-paused``, for each that is
Ticks               ``ticks``, ``tick-row``, ``lateness-chart``, ``duration-chart``, ``column``, ``gap``
==================  ==========================================================================================
"""
