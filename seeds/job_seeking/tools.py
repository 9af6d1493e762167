"""Job Exchange.

A regional job exchange. Companies post jobs; job seekers save jobs, apply, go through rounds of interviews, and
accept or decline offers. Every date comes with the request that causes the change.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from simia.kit import ToolError, Tools, read, write


class TableRow(BaseModel):
    """Base of all rows: unknown columns and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Company(TableRow):
    """A row of `companies`; its key is the row's id."""

    name: str
    industry: Literal["technology", "health", "education", "finance", "manufacturing", "retail", "hospitality", "public_service"]
    city: str
    status: Literal["unverified", "verified", "suspended"] = "unverified"


class Seeker(TableRow):
    """A row of `seekers`; its key is the row's id."""

    name: str
    email: str
    skills: list[str]
    years_experience: int = 0
    summary: str | None = None
    status: Literal["active", "paused", "hired"] = "active"


class Job(TableRow):
    """A row of `jobs`; its key is the row's id."""

    company_id: str
    title: str
    employment_type: Literal["full_time", "part_time", "contract", "internship"]
    work_mode: Literal["onsite", "hybrid", "remote"]
    required_skills: list[str]
    salary_min: int
    salary_max: int
    posted_on: str
    closes_on: str
    description: str | None = None
    location: str | None = None
    min_years: int = 0
    openings: int = 1
    closed_on: str | None = None
    status: Literal["open", "closed", "filled"] = "open"


class SavedJob(TableRow):
    """A row of `saved_jobs`; its key is the row's id."""

    seeker_id: str
    job_id: str
    saved_on: str
    note: str | None = None


class Application(TableRow):
    """A row of `applications`; its key is the row's id."""

    seeker_id: str
    job_id: str
    applied_on: str
    match_score: int
    updated_at: str
    cover_letter: str | None = None
    status: Literal["submitted", "interviewing", "offered", "hired", "rejected", "withdrawn"] = "submitted"
    ended_on: str | None = None


class Interview(TableRow):
    """A row of `interviews`; its key is the row's id."""

    application_id: str
    round: int
    kind: Literal["phone", "video", "onsite"]
    booked_on: str
    scheduled_on: str
    start_time: str
    duration_minutes: int = 60
    status: Literal["scheduled", "completed", "cancelled", "no_show"] = "scheduled"
    score: int | None = None
    feedback: str | None = None


class Offer(TableRow):
    """A row of `offers`; its key is the row's id."""

    application_id: str
    salary: int
    offered_on: str
    expires_on: str
    start_on: str
    status: Literal["pending", "accepted", "declined", "rescinded", "expired"] = "pending"


class State(BaseModel):
    """All tables: row id → row."""

    companies: dict[str, Company] = {}
    seekers: dict[str, Seeker] = {}
    jobs: dict[str, Job] = {}
    saved_jobs: dict[str, SavedJob] = {}
    applications: dict[str, Application] = {}
    interviews: dict[str, Interview] = {}
    offers: dict[str, Offer] = {}


class JobSeeking(Tools[State]):
    """The tools of the agent."""

    State = State

    @read
    def find_companies(
        self,
        company_id: str | None = None,
        name: str | None = None,
        industry: Literal["technology", "health", "education", "finance", "manufacturing", "retail", "hospitality", "public_service"] | None = None,
        city: str | None = None,
        status: Literal["unverified", "verified", "suspended"] | None = None,
    ) -> list[dict[str, Any]]:
        """Find companies that meet all given conditions; without any condition, all companies.

        Args:
            company_id: Only the company with this id.
            name: Only companies whose name contains this text, upper and lower case being the same.
            industry: Only this industry.
            city: Only this city, upper and lower case being the same.
            status: Only this status.

        Returns:
            A list of {company_id, name, industry, city, status} in the order of the ids; empty if none fits.
        """
        found = []
        for key, company in sorted(self.state.companies.items()):
            if company_id is not None and key != company_id:
                continue
            if name is not None and name.lower() not in company.name.lower():
                continue
            if industry is not None and company.industry != industry:
                continue
            if city is not None and company.city.lower() != city.lower():
                continue
            if status is not None and company.status != status:
                continue
            found.append(
                {
                    "company_id": key,
                    "name": company.name,
                    "industry": company.industry,
                    "city": company.city,
                    "status": company.status,
                }
            )
        return found

    @read
    def find_seekers(
        self,
        seeker_id: str | None = None,
        name: str | None = None,
        email: str | None = None,
        skill: str | None = None,
        min_years_experience: int | None = None,
        status: Literal["active", "paused", "hired"] | None = None,
    ) -> list[dict[str, Any]]:
        """Find job seekers that meet all given conditions; without any condition, all seekers.

        Args:
            seeker_id: Only the seeker with this id.
            name: Only seekers whose name contains this text, upper and lower case being the same.
            email: Only the seeker with exactly this email.
            skill: Only seekers who have exactly this skill.
            min_years_experience: Only seekers with at least this many years of experience.
            status: Only this status.

        Returns:
            A list of {seeker_id, name, email, skills, years_experience, summary, status} in the order of the ids; empty if none fits.
        """
        found = []
        for key, seeker in sorted(self.state.seekers.items()):
            if seeker_id is not None and key != seeker_id:
                continue
            if name is not None and name.lower() not in seeker.name.lower():
                continue
            if email is not None and seeker.email != email:
                continue
            if skill is not None and skill not in seeker.skills:
                continue
            if min_years_experience is not None and seeker.years_experience < min_years_experience:
                continue
            if status is not None and seeker.status != status:
                continue
            found.append(
                {
                    "seeker_id": key,
                    "name": seeker.name,
                    "email": seeker.email,
                    "skills": list(seeker.skills),
                    "years_experience": seeker.years_experience,
                    "summary": seeker.summary,
                    "status": seeker.status,
                }
            )
        return found

    @read
    def find_jobs(
        self,
        company_id: str | None = None,
        title: str | None = None,
        employment_type: Literal["full_time", "part_time", "contract", "internship"] | None = None,
        work_mode: Literal["onsite", "hybrid", "remote"] | None = None,
        location: str | None = None,
        required_skill: str | None = None,
        min_salary: int | None = None,
        status: Literal["open", "closed", "filled"] | None = None,
    ) -> list[dict[str, Any]]:
        """Find jobs that meet all given conditions; without any condition, all jobs.

        Args:
            company_id: Only jobs of this company.
            title: Only jobs whose title contains this text, upper and lower case being the same.
            employment_type: Only this type of employment.
            work_mode: Only this mode of work.
            location: Only jobs at this location, upper and lower case being the same.
            required_skill: Only jobs that require exactly this skill.
            min_salary: Only jobs whose salary_max is at least this.
            status: Only this status.

        Returns:
            A list of {job_id, company_id, title, employment_type, work_mode, location, salary_min, salary_max, posted_on, closes_on, status} in the order of the ids; empty if none fits.
        """
        if company_id is not None and company_id not in self.state.companies:
            raise ToolError(f"there is no company {company_id}; look up the id with find_companies")
        found = []
        for key, job in sorted(self.state.jobs.items()):
            if company_id is not None and job.company_id != company_id:
                continue
            if title is not None and title.lower() not in job.title.lower():
                continue
            if employment_type is not None and job.employment_type != employment_type:
                continue
            if work_mode is not None and job.work_mode != work_mode:
                continue
            if location is not None and (job.location is None or job.location.lower() != location.lower()):
                continue
            if required_skill is not None and required_skill not in job.required_skills:
                continue
            if min_salary is not None and job.salary_max < min_salary:
                continue
            if status is not None and job.status != status:
                continue
            found.append(
                {
                    "job_id": key,
                    "company_id": job.company_id,
                    "title": job.title,
                    "employment_type": job.employment_type,
                    "work_mode": job.work_mode,
                    "location": job.location,
                    "salary_min": job.salary_min,
                    "salary_max": job.salary_max,
                    "posted_on": job.posted_on,
                    "closes_on": job.closes_on,
                    "status": job.status,
                }
            )
        return found

    @read
    def get_job(self, job_id: str) -> dict[str, Any]:
        """Show all details of one job.

        Args:
            job_id: The job.

        Returns:
            All columns of the job with company_name, company_status, and the numbers of its hired applications and pending offers.
        """
        job = self.state.jobs.get(job_id)
        if job is None:
            raise ToolError(f"there is no job {job_id}; look up the id with find_jobs")
        company = self.state.companies.get(job.company_id)
        application_ids = {key for key, row in self.state.applications.items() if row.job_id == job_id}
        hired = sum(1 for key in application_ids if self.state.applications[key].status == "hired")
        pending = sum(
            1
            for offer in self.state.offers.values()
            if offer.status == "pending" and offer.application_id in application_ids
        )
        return {
            "job_id": job_id,
            "company_id": job.company_id,
            "company_name": company.name if company is not None else None,
            "company_status": company.status if company is not None else None,
            "title": job.title,
            "description": job.description,
            "employment_type": job.employment_type,
            "work_mode": job.work_mode,
            "location": job.location,
            "required_skills": list(job.required_skills),
            "min_years": job.min_years,
            "salary_min": job.salary_min,
            "salary_max": job.salary_max,
            "openings": job.openings,
            "posted_on": job.posted_on,
            "closes_on": job.closes_on,
            "closed_on": job.closed_on,
            "status": job.status,
            "hired_applications": hired,
            "pending_offers": pending,
        }

    @read
    def list_saved_jobs(self, seeker_id: str) -> list[dict[str, Any]]:
        """List the jobs that a seeker has saved.

        Args:
            seeker_id: The seeker.

        Returns:
            A list of {saved_job_id, job_id, title, job_status, saved_on, note} in the order of the saved_job_ids.
        """
        if seeker_id not in self.state.seekers:
            raise ToolError(f"there is no seeker {seeker_id}; look up the id with find_seekers")
        found = []
        for key, saved in sorted(self.state.saved_jobs.items()):
            if saved.seeker_id != seeker_id:
                continue
            job = self.state.jobs.get(saved.job_id)
            found.append(
                {
                    "saved_job_id": key,
                    "job_id": saved.job_id,
                    "title": job.title if job is not None else None,
                    "job_status": job.status if job is not None else None,
                    "saved_on": saved.saved_on,
                    "note": saved.note,
                }
            )
        return found

    @read
    def list_applications(
        self,
        seeker_id: str | None = None,
        job_id: str | None = None,
        status: Literal["submitted", "interviewing", "offered", "hired", "rejected", "withdrawn"] | None = None,
    ) -> list[dict[str, Any]]:
        """List the applications that meet all given conditions; without any condition, all applications.

        Args:
            seeker_id: Only applications of this seeker.
            job_id: Only applications for this job.
            status: Only this status.

        Returns:
            A list of {application_id, seeker_id, job_id, applied_on, match_score, status, ended_on} in the order of the ids; empty if none fits.
        """
        if seeker_id is not None and seeker_id not in self.state.seekers:
            raise ToolError(f"there is no seeker {seeker_id}; look up the id with find_seekers")
        if job_id is not None and job_id not in self.state.jobs:
            raise ToolError(f"there is no job {job_id}; look up the id with find_jobs")
        found = []
        for key, application in sorted(self.state.applications.items()):
            if seeker_id is not None and application.seeker_id != seeker_id:
                continue
            if job_id is not None and application.job_id != job_id:
                continue
            if status is not None and application.status != status:
                continue
            found.append(
                {
                    "application_id": key,
                    "seeker_id": application.seeker_id,
                    "job_id": application.job_id,
                    "applied_on": application.applied_on,
                    "match_score": application.match_score,
                    "status": application.status,
                    "ended_on": application.ended_on,
                }
            )
        return found

    @read
    def get_application(self, application_id: str) -> dict[str, Any]:
        """Show all details of one application, with the state of its interviews and its offer.

        Args:
            application_id: The application.

        Returns:
            The application with seeker_name, job_title, company_id, completed_interviews, average_score, scheduled_interview_id and offer_id.
        """
        application = self.state.applications.get(application_id)
        if application is None:
            raise ToolError(f"there is no application {application_id}; look up the id with list_applications")
        seeker = self.state.seekers.get(application.seeker_id)
        job = self.state.jobs.get(application.job_id)
        completed = 0
        scores = []
        scheduled_interview_id = None
        for key, interview in sorted(self.state.interviews.items()):
            if interview.application_id != application_id:
                continue
            if interview.status == "completed":
                completed += 1
                if interview.score is not None:
                    scores.append(interview.score)
            elif interview.status == "scheduled":
                scheduled_interview_id = key
        offer_id = None
        for key, offer in sorted(self.state.offers.items()):
            if offer.application_id == application_id:
                offer_id = key
        return {
            "application_id": application_id,
            "seeker_id": application.seeker_id,
            "seeker_name": seeker.name if seeker is not None else None,
            "job_id": application.job_id,
            "job_title": job.title if job is not None else None,
            "company_id": job.company_id if job is not None else None,
            "applied_on": application.applied_on,
            "match_score": application.match_score,
            "cover_letter": application.cover_letter,
            "status": application.status,
            "ended_on": application.ended_on,
            "completed_interviews": completed,
            "average_score": round(sum(scores) / len(scores), 2) if scores else None,
            "scheduled_interview_id": scheduled_interview_id,
            "offer_id": offer_id,
        }

    @read
    def list_interviews(
        self,
        application_id: str | None = None,
        seeker_id: str | None = None,
        job_id: str | None = None,
        scheduled_on: str | None = None,
        status: Literal["scheduled", "completed", "cancelled", "no_show"] | None = None,
    ) -> list[dict[str, Any]]:
        """List the interviews that meet all given conditions; without any condition, all interviews.

        Args:
            application_id: Only interviews of this application.
            seeker_id: Only interviews of this seeker's applications.
            job_id: Only interviews of applications for this job.
            scheduled_on: Only interviews scheduled on this date (YYYY-MM-DD).
            status: Only this status.

        Returns:
            A list of {interview_id, application_id, round, kind, booked_on, scheduled_on, start_time, duration_minutes, status, score, feedback} in the order of the ids; empty if none fits.
        """
        if application_id is not None and application_id not in self.state.applications:
            raise ToolError(f"there is no application {application_id}; look up the id with list_applications")
        if seeker_id is not None and seeker_id not in self.state.seekers:
            raise ToolError(f"there is no seeker {seeker_id}; look up the id with find_seekers")
        if job_id is not None and job_id not in self.state.jobs:
            raise ToolError(f"there is no job {job_id}; look up the id with find_jobs")
        found = []
        for key, interview in sorted(self.state.interviews.items()):
            application = self.state.applications.get(interview.application_id)
            if application_id is not None and interview.application_id != application_id:
                continue
            if seeker_id is not None and (application is None or application.seeker_id != seeker_id):
                continue
            if job_id is not None and (application is None or application.job_id != job_id):
                continue
            if scheduled_on is not None and interview.scheduled_on != scheduled_on:
                continue
            if status is not None and interview.status != status:
                continue
            found.append(
                {
                    "interview_id": key,
                    "application_id": interview.application_id,
                    "round": interview.round,
                    "kind": interview.kind,
                    "booked_on": interview.booked_on,
                    "scheduled_on": interview.scheduled_on,
                    "start_time": interview.start_time,
                    "duration_minutes": interview.duration_minutes,
                    "status": interview.status,
                    "score": interview.score,
                    "feedback": interview.feedback,
                }
            )
        return found

    @read
    def list_offers(
        self,
        application_id: str | None = None,
        seeker_id: str | None = None,
        job_id: str | None = None,
        status: Literal["pending", "accepted", "declined", "rescinded", "expired"] | None = None,
    ) -> list[dict[str, Any]]:
        """List the offers that meet all given conditions; without any condition, all offers.

        Args:
            application_id: Only the offer for this application.
            seeker_id: Only offers for this seeker's applications.
            job_id: Only offers for applications for this job.
            status: Only this status.

        Returns:
            A list of {offer_id, application_id, seeker_id, job_id, salary, offered_on, expires_on, start_on, status} in the order of the ids; empty if none fits.
        """
        if application_id is not None and application_id not in self.state.applications:
            raise ToolError(f"there is no application {application_id}; look up the id with list_applications")
        if seeker_id is not None and seeker_id not in self.state.seekers:
            raise ToolError(f"there is no seeker {seeker_id}; look up the id with find_seekers")
        if job_id is not None and job_id not in self.state.jobs:
            raise ToolError(f"there is no job {job_id}; look up the id with find_jobs")
        found = []
        for key, offer in sorted(self.state.offers.items()):
            application = self.state.applications.get(offer.application_id)
            offer_seeker_id = application.seeker_id if application is not None else None
            offer_job_id = application.job_id if application is not None else None
            if application_id is not None and offer.application_id != application_id:
                continue
            if seeker_id is not None and offer_seeker_id != seeker_id:
                continue
            if job_id is not None and offer_job_id != job_id:
                continue
            if status is not None and offer.status != status:
                continue
            found.append(
                {
                    "offer_id": key,
                    "application_id": offer.application_id,
                    "seeker_id": offer_seeker_id,
                    "job_id": offer_job_id,
                    "salary": offer.salary,
                    "offered_on": offer.offered_on,
                    "expires_on": offer.expires_on,
                    "start_on": offer.start_on,
                    "status": offer.status,
                }
            )
        return found

    @write
    def register_company(
        self,
        name: str,
        industry: Literal["technology", "health", "education", "finance", "manufacturing", "retail", "hospitality", "public_service"],
        city: str,
    ) -> dict[str, Any]:
        """Register a new company.

        Args:
            name: The company's name, unlike that of any other company.
            industry: The industry.
            city: The city.

        Returns:
            company_id and status.
        """
        if not name.strip():
            raise ToolError("name is empty; give the company's name")
        if not city.strip():
            raise ToolError("city is empty; give the company's city")
        for key, company in sorted(self.state.companies.items()):
            if company.name == name:
                raise ToolError(f"company {key} has the name {name} already; use that company or give another name")
        company_id = self.new_id("CO-", 3, taken=self.state.companies)
        self.state.companies[company_id] = Company(name=name, industry=industry, city=city, status="unverified")
        return {"company_id": company_id, "status": "unverified"}

    @write
    def verify_company(self, company_id: str) -> dict[str, Any]:
        """Verify an unverified company.

        Args:
            company_id: The company.

        Returns:
            company_id and status.
        """
        company = self.state.companies.get(company_id)
        if company is None:
            raise ToolError(f"there is no company {company_id}; look up the id with find_companies")
        if company.status != "unverified":
            raise ToolError(f"{company_id} is {company.status}; only an unverified company can be verified")
        company.status = "verified"
        return {"company_id": company_id, "status": company.status}

    @write
    def suspend_company(self, company_id: str, suspended_on: str) -> dict[str, Any]:
        """Suspend a verified company and close all its open jobs.

        Args:
            company_id: The company.
            suspended_on: The date of the suspension (YYYY-MM-DD).

        Returns:
            company_id, status, closed_job_ids and rejected_application_ids, both lists in the order of the ids.
        """
        company = self.state.companies.get(company_id)
        if company is None:
            raise ToolError(f"there is no company {company_id}; look up the id with find_companies")
        if company.status != "verified":
            raise ToolError(f"{company_id} is {company.status}; only a verified company can be suspended")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", suspended_on):
            raise ToolError(f"suspended_on {suspended_on} is not a date; write it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(suspended_on)
        except ValueError:
            raise ToolError(f"suspended_on {suspended_on} is not a date; write it as YYYY-MM-DD")
        closed_job_ids = []
        for key, job in sorted(self.state.jobs.items()):
            if job.company_id != company_id or job.status != "open":
                continue
            if day < date.fromisoformat(job.posted_on):
                raise ToolError(
                    f"suspended_on {suspended_on} is before {job.posted_on}, when the open job {key} was posted; give a later date"
                )
            closed_job_ids.append(key)
        rejected_application_ids = [
            key
            for key, application in sorted(self.state.applications.items())
            if application.job_id in closed_job_ids and application.status == "submitted"
        ]
        company.status = "suspended"
        for key in closed_job_ids:
            job = self.state.jobs[key]
            job.closed_on = suspended_on
            job.status = "closed"
        for key in rejected_application_ids:
            application = self.state.applications[key]
            application.status = "rejected"
            application.ended_on = suspended_on
            application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "company_id": company_id,
            "status": company.status,
            "closed_job_ids": closed_job_ids,
            "rejected_application_ids": rejected_application_ids,
        }

    @write
    def reinstate_company(self, company_id: str) -> dict[str, Any]:
        """Make a suspended company verified again.

        Args:
            company_id: The company.

        Returns:
            company_id and status.
        """
        company = self.state.companies.get(company_id)
        if company is None:
            raise ToolError(f"there is no company {company_id}; look up the id with find_companies")
        if company.status != "suspended":
            raise ToolError(f"{company_id} is {company.status}; only a suspended company can be reinstated")
        company.status = "verified"
        return {"company_id": company_id, "status": company.status}

    @write
    def register_seeker(
        self,
        name: str,
        email: str,
        skills: list[str],
        years_experience: int = 0,
        summary: str | None = None,
    ) -> dict[str, Any]:
        """Register a new job seeker.

        Args:
            name: The seeker's name.
            email: The seeker's email, unlike that of any other seeker.
            skills: The seeker's skills in lower case, at most 20, none twice; may be empty.
            years_experience: Years of experience, 0 to 50; 0 if left out.
            summary: A short text about the seeker.

        Returns:
            seeker_id and status.
        """
        if not name.strip():
            raise ToolError("name is empty; give the seeker's name")
        if not re.fullmatch(r"[^@\s]+@[^@\s]+", email):
            raise ToolError(f"email {email} is not of the form text@text without spaces; correct it")
        for key, seeker in sorted(self.state.seekers.items()):
            if seeker.email == email:
                raise ToolError(f"seeker {key} has the email {email} already; use that seeker or give another email")
        if len(skills) > 20:
            raise ToolError(f"there are {len(skills)} skills; give at most 20")
        if len(set(skills)) != len(skills):
            raise ToolError("a skill is given twice; give each skill once")
        for skill in skills:
            if not re.fullmatch(r"[a-z0-9][a-z0-9 +#.\-]*", skill):
                raise ToolError(
                    f"the skill '{skill}' must start with a lower-case letter or digit and have only lower-case letters, digits, spaces, +, #, . and -"
                )
        if not 0 <= years_experience <= 50:
            raise ToolError(f"years_experience is {years_experience}; give a number from 0 to 50")
        seeker_id = self.new_id("SK-", 4, taken=self.state.seekers)
        self.state.seekers[seeker_id] = Seeker(
            name=name,
            email=email,
            skills=list(skills),
            years_experience=years_experience,
            summary=summary,
            status="active",
        )
        return {"seeker_id": seeker_id, "status": "active"}

    @write
    def update_seeker_profile(
        self,
        seeker_id: str,
        name: str | None = None,
        email: str | None = None,
        skills: list[str] | None = None,
        years_experience: int | None = None,
        summary: str | None = None,
    ) -> dict[str, Any]:
        """Change the profile of a seeker; what is left out stays as it is.

        Args:
            seeker_id: The seeker.
            name: The new name.
            email: The new email.
            skills: The complete new list of skills in lower case, at most 20, none twice; it replaces the old list.
            years_experience: The new years of experience, 0 to 50.
            summary: The new summary.

        Returns:
            seeker_id, name, email, skills, years_experience, summary and status.
        """
        seeker = self.state.seekers.get(seeker_id)
        if seeker is None:
            raise ToolError(f"there is no seeker {seeker_id}; give the id of an existing seeker")
        if name is None and email is None and skills is None and years_experience is None and summary is None:
            raise ToolError("nothing to change is given; give at least one new value")
        if name is not None and not name.strip():
            raise ToolError("name is empty; give a name or leave it out")
        if email is not None:
            if re.fullmatch(r"[^@\s]+@[^@\s]+", email) is None:
                raise ToolError(f"{email!r} is not an email; give it in the form text@text without spaces")
            for other_id in sorted(self.state.seekers):
                if other_id != seeker_id and self.state.seekers[other_id].email == email:
                    raise ToolError(f"another seeker has the email {email} already; give another one")
        if skills is not None:
            if len(skills) > 20:
                raise ToolError(f"{len(skills)} skills are too many; give at most 20")
            if len(set(skills)) != len(skills):
                raise ToolError("a skill is given twice; give each skill once")
            for skill in skills:
                if re.fullmatch(r"[a-z0-9][a-z0-9 +#.\-]*", skill) is None:
                    raise ToolError(
                        f"{skill!r} is not a valid skill; start with a lower-case letter or digit and use only "
                        "lower-case letters, digits, spaces, +, #, . and -"
                    )
        if years_experience is not None and not 0 <= years_experience <= 50:
            raise ToolError(f"years_experience {years_experience} is not allowed; give a number from 0 to 50")
        if name is not None:
            seeker.name = name
        if email is not None:
            seeker.email = email
        if skills is not None:
            seeker.skills = list(skills)
        if years_experience is not None:
            seeker.years_experience = years_experience
        if summary is not None:
            seeker.summary = summary
        return {
            "seeker_id": seeker_id,
            "name": seeker.name,
            "email": seeker.email,
            "skills": list(seeker.skills),
            "years_experience": seeker.years_experience,
            "summary": seeker.summary,
            "status": seeker.status,
        }

    @write
    def set_seeker_status(self, seeker_id: str, status: Literal["active", "paused"]) -> dict[str, Any]:
        """Pause an active seeker or make a paused seeker active again.

        Args:
            seeker_id: The seeker.
            status: The new status.

        Returns:
            seeker_id and status.
        """
        seeker = self.state.seekers.get(seeker_id)
        if seeker is None:
            raise ToolError(f"there is no seeker {seeker_id}; give the id of an existing seeker")
        if status not in ("active", "paused"):
            raise ToolError(f"{status!r} is not a status to set; give active or paused")
        if seeker.status == "hired":
            raise ToolError(f"{seeker_id} is hired; the status of a hired seeker cannot be changed")
        if seeker.status == status:
            raise ToolError(f"{seeker_id} is {status} already; there is nothing to change")
        seeker.status = status
        return {"seeker_id": seeker_id, "status": seeker.status}

    @write
    def post_job(
        self,
        company_id: str,
        title: str,
        employment_type: Literal["full_time", "part_time", "contract", "internship"],
        work_mode: Literal["onsite", "hybrid", "remote"],
        required_skills: list[str],
        salary_min: int,
        salary_max: int,
        posted_on: str,
        closes_on: str,
        description: str | None = None,
        location: str | None = None,
        min_years: int = 0,
        openings: int = 1,
    ) -> dict[str, Any]:
        """Post a new job of a verified company.

        Args:
            company_id: The company that posts the job.
            title: The title.
            employment_type: The type of employment.
            work_mode: The mode of work.
            required_skills: The required skills in lower case, at most 10, none twice; may be empty.
            salary_min: The lowest salary, at least 1.
            salary_max: The highest salary, at least salary_min.
            posted_on: The date of posting (YYYY-MM-DD).
            closes_on: The last day to apply (YYYY-MM-DD), 7 to 90 days after posted_on.
            description: What the job is about.
            location: The place of work: needed for an onsite or hybrid job, left out for a remote job.
            min_years: Years of experience asked for, 0 to 30; 0 if left out.
            openings: How many people are sought, 1 to 20; 1 if left out.

        Returns:
            job_id, company_id, status, posted_on and closes_on.
        """
        company = self.state.companies.get(company_id)
        if company is None:
            raise ToolError(f"there is no company {company_id}; give the id of an existing company")
        if company.status != "verified":
            raise ToolError(f"{company_id} is {company.status}; only a verified company can post a job")
        open_jobs = sum(
            1 for job in self.state.jobs.values() if job.company_id == company_id and job.status == "open"
        )
        if open_jobs >= 10:
            raise ToolError(f"{company_id} has {open_jobs} open jobs already; close one first")
        if not title.strip():
            raise ToolError("title is empty; give a title")
        if work_mode == "remote":
            if location is not None:
                raise ToolError("a remote job has no location; leave location out")
        elif location is None or not location.strip():
            raise ToolError(f"the job is {work_mode} and has no location; give its location")
        if len(required_skills) > 10:
            raise ToolError(f"{len(required_skills)} required skills are too many; give at most 10")
        if len(set(required_skills)) != len(required_skills):
            raise ToolError("a required skill is given twice; give each skill once")
        for skill in required_skills:
            if re.fullmatch(r"[a-z0-9][a-z0-9 +#.\-]*", skill) is None:
                raise ToolError(
                    f"{skill!r} is not a valid skill; start with a lower-case letter or digit and use only "
                    "lower-case letters, digits, spaces, +, #, . and -"
                )
        if not 0 <= min_years <= 30:
            raise ToolError(f"min_years {min_years} is not allowed; give a number from 0 to 30")
        if salary_min < 1:
            raise ToolError(f"salary_min {salary_min} is less than 1; give at least 1")
        if salary_min > salary_max:
            raise ToolError(f"salary_min {salary_min} is more than salary_max {salary_max}; give a range in order")
        if not 1 <= openings <= 20:
            raise ToolError(f"openings {openings} is not allowed; give a number from 1 to 20")
        days: list[date] = []
        for label, value in (("posted_on", posted_on), ("closes_on", closes_on)):
            if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value) is None:
                raise ToolError(f"{label} {value!r} is not a date; give it as YYYY-MM-DD")
            try:
                days.append(date.fromisoformat(value))
            except ValueError:
                raise ToolError(f"{label} {value!r} is not a date; give it as YYYY-MM-DD")
        length = (days[1] - days[0]).days
        if length < 7:
            raise ToolError(f"closes_on {closes_on} is less than 7 days after posted_on; give a later day")
        if length > 90:
            raise ToolError(f"closes_on {closes_on} is more than 90 days after posted_on; give an earlier day")
        job_id = self.new_id("JB-", 4, taken=self.state.jobs)
        self.state.jobs[job_id] = Job(
            company_id=company_id,
            title=title,
            employment_type=employment_type,
            work_mode=work_mode,
            required_skills=list(required_skills),
            salary_min=salary_min,
            salary_max=salary_max,
            posted_on=posted_on,
            closes_on=closes_on,
            description=description,
            location=location,
            min_years=min_years,
            openings=openings,
            closed_on=None,
            status="open",
        )
        return {
            "job_id": job_id,
            "company_id": company_id,
            "status": "open",
            "posted_on": posted_on,
            "closes_on": closes_on,
        }

    @write
    def close_job(self, job_id: str, closed_on: str) -> dict[str, Any]:
        """Close an open job.

        Args:
            job_id: The job.
            closed_on: The date of closing (YYYY-MM-DD).

        Returns:
            job_id, status, closed_on and rejected_application_ids, the list in the order of the ids.
        """
        job = self.state.jobs.get(job_id)
        if job is None:
            raise ToolError(f"there is no job {job_id}; give the id of an existing job")
        if job.status != "open":
            raise ToolError(f"{job_id} is {job.status}; only an open job can be closed")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", closed_on) is None:
            raise ToolError(f"closed_on {closed_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(closed_on)
        except ValueError:
            raise ToolError(f"closed_on {closed_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(job.posted_on):
            raise ToolError(f"closed_on {closed_on} is before the job's posted_on {job.posted_on}; give a later date")
        job.status = "closed"
        job.closed_on = closed_on
        rejected: list[str] = []
        for application_id in sorted(self.state.applications):
            application = self.state.applications[application_id]
            if application.job_id == job_id and application.status == "submitted":
                application.status = "rejected"
                application.ended_on = closed_on
                application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
                rejected.append(application_id)
        return {
            "job_id": job_id,
            "status": job.status,
            "closed_on": job.closed_on,
            "rejected_application_ids": rejected,
        }

    @write
    def save_job(self, seeker_id: str, job_id: str, saved_on: str, note: str | None = None) -> dict[str, Any]:
        """Save an open job for a seeker.

        Args:
            seeker_id: The seeker.
            job_id: The job.
            saved_on: The date of saving (YYYY-MM-DD).
            note: The seeker's note on the job.

        Returns:
            saved_job_id, seeker_id, job_id and saved_on.
        """
        seeker = self.state.seekers.get(seeker_id)
        if seeker is None:
            raise ToolError(f"there is no seeker {seeker_id}; give the id of an existing seeker")
        job = self.state.jobs.get(job_id)
        if job is None:
            raise ToolError(f"there is no job {job_id}; give the id of an existing job")
        if seeker.status != "active":
            raise ToolError(f"{seeker_id} is {seeker.status}; only an active seeker can save a job")
        if job.status != "open":
            raise ToolError(f"{job_id} is {job.status}; only an open job can be saved")
        saved = [row for row in self.state.saved_jobs.values() if row.seeker_id == seeker_id]
        if any(row.job_id == job_id for row in saved):
            raise ToolError(f"{seeker_id} has saved {job_id} already")
        if len(saved) >= 25:
            raise ToolError(f"{seeker_id} has {len(saved)} saved jobs already; remove one first")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", saved_on) is None:
            raise ToolError(f"saved_on {saved_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            date.fromisoformat(saved_on)
        except ValueError:
            raise ToolError(f"saved_on {saved_on!r} is not a date; give it as YYYY-MM-DD")
        saved_job_id = self.new_id("SV-", 5, taken=self.state.saved_jobs)
        self.state.saved_jobs[saved_job_id] = SavedJob(
            seeker_id=seeker_id, job_id=job_id, saved_on=saved_on, note=note
        )
        return {"saved_job_id": saved_job_id, "seeker_id": seeker_id, "job_id": job_id, "saved_on": saved_on}

    @write
    def remove_saved_job(self, saved_job_id: str) -> dict[str, Any]:
        """Remove a job from a seeker's saved jobs.

        Args:
            saved_job_id: The saved job (SV- id).

        Returns:
            saved_job_id, seeker_id and job_id of the removed saved job.
        """
        saved = self.state.saved_jobs.get(saved_job_id)
        if saved is None:
            raise ToolError(f"there is no saved job {saved_job_id}; give the id of an existing saved job")
        del self.state.saved_jobs[saved_job_id]
        return {"saved_job_id": saved_job_id, "seeker_id": saved.seeker_id, "job_id": saved.job_id}

    @write
    def apply_for_job(
        self, seeker_id: str, job_id: str, applied_on: str, cover_letter: str | None = None
    ) -> dict[str, Any]:
        """Apply for an open job on behalf of a seeker.

        Args:
            seeker_id: The seeker.
            job_id: The job.
            applied_on: The date of the application (YYYY-MM-DD).
            cover_letter: The cover letter.

        Returns:
            application_id, seeker_id, job_id, applied_on, match_score, status and removed_saved_job_id,
            the last being null if the seeker had not saved the job.
        """
        seeker = self.state.seekers.get(seeker_id)
        if seeker is None:
            raise ToolError(f"there is no seeker {seeker_id}; give the id of an existing seeker")
        job = self.state.jobs.get(job_id)
        if job is None:
            raise ToolError(f"there is no job {job_id}; give the id of an existing job")
        if seeker.status != "active":
            raise ToolError(f"{seeker_id} is {seeker.status}; only an active seeker can apply")
        if job.status != "open":
            raise ToolError(f"{job_id} is {job.status}; apply for an open job")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", applied_on) is None:
            raise ToolError(f"applied_on {applied_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(applied_on)
        except ValueError:
            raise ToolError(f"applied_on {applied_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(job.posted_on):
            raise ToolError(f"applied_on {applied_on} is before the job's posted_on {job.posted_on}; give a later date")
        if day > date.fromisoformat(job.closes_on):
            raise ToolError(f"applied_on {applied_on} is after the job's closes_on {job.closes_on}")
        own = [
            self.state.applications[application_id]
            for application_id in sorted(self.state.applications)
            if self.state.applications[application_id].seeker_id == seeker_id
        ]
        ongoing = sum(1 for row in own if row.status in ("submitted", "interviewing", "offered"))
        if ongoing >= 15:
            raise ToolError(f"{seeker_id} has {ongoing} ongoing applications already; withdraw one first")
        same = [row for row in own if row.job_id == job_id]
        for row in same:
            if row.status != "withdrawn":
                raise ToolError(f"{seeker_id} has an application for {job_id} that is {row.status}; apply for another job")
        if len(same) >= 2:
            raise ToolError(f"{seeker_id} has {len(same)} applications for {job_id} already; apply for another job")
        for row in same:
            if row.ended_on is not None and (day - date.fromisoformat(row.ended_on)).days < 30:
                raise ToolError(
                    f"{seeker_id} withdrew an application for {job_id} on {row.ended_on}; apply again from 30 days after it"
                )
        if job.required_skills:
            skill_part = 70 * sum(1 for skill in job.required_skills if skill in seeker.skills)
            skill_base = len(job.required_skills)
        else:
            skill_part = 70
            skill_base = 1
        if job.min_years > 0:
            years_part = 30 * min(seeker.years_experience, job.min_years)
            years_base = job.min_years
        else:
            years_part = 30
            years_base = 1
        match_score = (skill_part * years_base + years_part * skill_base) // (skill_base * years_base)
        if match_score < 40:
            raise ToolError(f"the match_score would be {match_score}, below 40; apply for a job that fits better")
        application_id = self.new_id("AP-", 5, taken=self.state.applications)
        self.state.applications[application_id] = Application(
            seeker_id=seeker_id,
            job_id=job_id,
            applied_on=applied_on,
            match_score=match_score,
            updated_at=self.now.isoformat(),
            cover_letter=cover_letter,
            status="submitted",
            ended_on=None,
        )
        removed_saved_job_id: str | None = None
        for saved_job_id in sorted(self.state.saved_jobs):
            saved = self.state.saved_jobs[saved_job_id]
            if saved.seeker_id == seeker_id and saved.job_id == job_id:
                removed_saved_job_id = saved_job_id
                break
        if removed_saved_job_id is not None:
            del self.state.saved_jobs[removed_saved_job_id]
        return {
            "application_id": application_id,
            "seeker_id": seeker_id,
            "job_id": job_id,
            "applied_on": applied_on,
            "match_score": match_score,
            "status": "submitted",
            "removed_saved_job_id": removed_saved_job_id,
        }

    @write
    def withdraw_application(self, application_id: str, withdrawn_on: str) -> dict[str, Any]:
        """Withdraw a submitted or interviewing application at the seeker's wish.

        Args:
            application_id: The application.
            withdrawn_on: The date of the withdrawal (YYYY-MM-DD).

        Returns:
            application_id, status, ended_on and cancelled_interview_id, the last being null if no interview
            was scheduled.
        """
        application = self.state.applications.get(application_id)
        if application is None:
            raise ToolError(f"there is no application {application_id}; give the id of an existing application")
        if application.status not in ("submitted", "interviewing"):
            raise ToolError(
                f"{application_id} is {application.status}; only a submitted or interviewing application can be withdrawn"
            )
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", withdrawn_on) is None:
            raise ToolError(f"withdrawn_on {withdrawn_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(withdrawn_on)
        except ValueError:
            raise ToolError(f"withdrawn_on {withdrawn_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(application.applied_on):
            raise ToolError(
                f"withdrawn_on {withdrawn_on} is before the application's applied_on {application.applied_on}; give a later date"
            )
        application.status = "withdrawn"
        application.ended_on = withdrawn_on
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        cancelled_interview_id: str | None = None
        for interview_id in sorted(self.state.interviews):
            interview = self.state.interviews[interview_id]
            if interview.application_id == application_id and interview.status == "scheduled":
                interview.status = "cancelled"
                cancelled_interview_id = interview_id
                break
        return {
            "application_id": application_id,
            "status": application.status,
            "ended_on": application.ended_on,
            "cancelled_interview_id": cancelled_interview_id,
        }

    @write
    def reject_application(self, application_id: str, rejected_on: str) -> dict[str, Any]:
        """Reject a submitted or interviewing application at the company's wish.

        Args:
            application_id: The application.
            rejected_on: The date of the rejection (YYYY-MM-DD).

        Returns:
            application_id, status, ended_on and cancelled_interview_id, the last being null if no interview
            was scheduled.
        """
        application = self.state.applications.get(application_id)
        if application is None:
            raise ToolError(f"there is no application {application_id}; give the id of an existing application")
        if application.status not in ("submitted", "interviewing"):
            raise ToolError(
                f"{application_id} is {application.status}; only a submitted or interviewing application can be rejected"
            )
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", rejected_on) is None:
            raise ToolError(f"rejected_on {rejected_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(rejected_on)
        except ValueError:
            raise ToolError(f"rejected_on {rejected_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(application.applied_on):
            raise ToolError(
                f"rejected_on {rejected_on} is before the application's applied_on {application.applied_on}; give a later date"
            )
        application.status = "rejected"
        application.ended_on = rejected_on
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        cancelled_interview_id: str | None = None
        for interview_id in sorted(self.state.interviews):
            interview = self.state.interviews[interview_id]
            if interview.application_id == application_id and interview.status == "scheduled":
                interview.status = "cancelled"
                cancelled_interview_id = interview_id
                break
        return {
            "application_id": application_id,
            "status": application.status,
            "ended_on": application.ended_on,
            "cancelled_interview_id": cancelled_interview_id,
        }

    @write
    def book_interview(
        self,
        application_id: str,
        kind: Literal["phone", "video", "onsite"],
        booked_on: str,
        scheduled_on: str,
        start_time: str,
        duration_minutes: int = 60,
    ) -> dict[str, Any]:
        """Book the next interview for an application.

        Args:
            application_id: The application.
            kind: The kind of interview.
            booked_on: The date of the booking (YYYY-MM-DD).
            scheduled_on: The day of the interview (YYYY-MM-DD), Monday to Friday, 2 to 30 days after booked_on.
            start_time: The start in 24-hour form (HH:MM), 08:00 or later.
            duration_minutes: The length in minutes, 15 to 180; 60 if left out.

        Returns:
            interview_id, application_id, round, scheduled_on, start_time, duration_minutes, status and
            application_status.
        """
        application = self.state.applications.get(application_id)
        if application is None:
            raise ToolError(f"there is no application {application_id}; give the id of an existing application")
        company_id = self.state.jobs[application.job_id].company_id
        company = self.state.companies[company_id]
        if company.status != "verified":
            raise ToolError(f"{company_id} is {company.status}; only a verified company can book an interview")
        if application.status not in ("submitted", "interviewing"):
            raise ToolError(
                f"{application_id} is {application.status}; an interview needs a submitted or interviewing application"
            )
        completed = []
        for interview_id in sorted(self.state.interviews):
            interview = self.state.interviews[interview_id]
            if interview.application_id != application_id:
                continue
            if interview.status == "scheduled":
                raise ToolError(f"{application_id} has the scheduled interview {interview_id}; complete or cancel it first")
            if interview.status == "completed":
                completed.append(interview)
        if len(completed) >= 4:
            raise ToolError(f"{application_id} has {len(completed)} completed interviews already; no more can be booked")
        days: list[date] = []
        for label, value in (("booked_on", booked_on), ("scheduled_on", scheduled_on)):
            if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value) is None:
                raise ToolError(f"{label} {value!r} is not a date; give it as YYYY-MM-DD")
            try:
                days.append(date.fromisoformat(value))
            except ValueError:
                raise ToolError(f"{label} {value!r} is not a date; give it as YYYY-MM-DD")
        booked, scheduled = days
        if booked < date.fromisoformat(application.applied_on):
            raise ToolError(
                f"booked_on {booked_on} is before the application's applied_on {application.applied_on}; give a later date"
            )
        if completed:
            last = max(date.fromisoformat(interview.scheduled_on) for interview in completed)
            if booked < last:
                raise ToolError(
                    f"booked_on {booked_on} is before the last completed interview on {last.isoformat()}; give a later date"
                )
        if scheduled.weekday() >= 5:
            raise ToolError(f"scheduled_on {scheduled_on} is a Saturday or Sunday; give a day from Monday to Friday")
        ahead = (scheduled - booked).days
        if ahead < 2:
            raise ToolError(f"scheduled_on {scheduled_on} is less than 2 days after booked_on; give a later day")
        if ahead > 30:
            raise ToolError(f"scheduled_on {scheduled_on} is more than 30 days after booked_on; give an earlier day")
        if re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", start_time) is None:
            raise ToolError(f"start_time {start_time!r} is not a time; give it as HH:MM")
        if not 15 <= duration_minutes <= 180:
            raise ToolError(f"duration_minutes {duration_minutes} is not allowed; give a number from 15 to 180")
        start = int(start_time[:2]) * 60 + int(start_time[3:])
        end = start + duration_minutes
        if start < 8 * 60:
            raise ToolError(f"start_time {start_time} is before 08:00; start at 08:00 or later")
        if end > 18 * 60:
            raise ToolError("the interview would end after 18:00; start earlier or make it shorter")
        for interview_id in sorted(self.state.interviews):
            other = self.state.interviews[interview_id]
            if other.status != "scheduled" or other.scheduled_on != scheduled_on:
                continue
            if self.state.applications[other.application_id].seeker_id != application.seeker_id:
                continue
            hours, minutes = other.start_time.split(":")
            other_start = int(hours) * 60 + int(minutes)
            other_end = other_start + other.duration_minutes
            if start < other_end and other_start < end:
                raise ToolError(
                    f"the interview would overlap with {interview_id} of the same seeker; give another time or day"
                )
        interview_round = len(completed) + 1
        new = self.new_id("IV-", 5, taken=self.state.interviews)
        self.state.interviews[new] = Interview(
            application_id=application_id,
            round=interview_round,
            kind=kind,
            booked_on=booked_on,
            scheduled_on=scheduled_on,
            start_time=start_time,
            duration_minutes=duration_minutes,
            status="scheduled",
            score=None,
            feedback=None,
        )
        application.status = "interviewing"
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "interview_id": new,
            "application_id": application_id,
            "round": interview_round,
            "scheduled_on": scheduled_on,
            "start_time": start_time,
            "duration_minutes": duration_minutes,
            "status": "scheduled",
            "application_status": application.status,
        }

    @write
    def complete_interview(self, interview_id: str, score: int, feedback: str | None = None) -> dict[str, Any]:
        """Record a scheduled interview as completed with its score.

        Args:
            interview_id: The interview.
            score: The score from 1 to 5.
            feedback: The feedback.

        Returns:
            interview_id, status, score, application_id and application_status.
        """
        interview = self.state.interviews.get(interview_id)
        if interview is None:
            raise ToolError(f"there is no interview {interview_id}; give the id of an existing interview")
        if interview.status != "scheduled":
            raise ToolError(f"{interview_id} is {interview.status}; only a scheduled interview can be completed")
        if not 1 <= score <= 5:
            raise ToolError(f"score {score} is not allowed; give a number from 1 to 5")
        application = self.state.applications[interview.application_id]
        interview.status = "completed"
        interview.score = score
        interview.feedback = feedback
        if score <= 2:
            application.status = "rejected"
            application.ended_on = interview.scheduled_on
            application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "interview_id": interview_id,
            "status": interview.status,
            "score": interview.score,
            "application_id": interview.application_id,
            "application_status": application.status,
        }

    @write
    def cancel_interview(self, interview_id: str) -> dict[str, Any]:
        """Cancel a scheduled interview.

        Args:
            interview_id: The interview.

        Returns:
            interview_id, status and application_id.
        """
        interview = self.state.interviews.get(interview_id)
        if interview is None:
            raise ToolError(f"there is no interview {interview_id}; give the id of an existing interview")
        if interview.status != "scheduled":
            raise ToolError(f"{interview_id} is {interview.status}; only a scheduled interview can be cancelled")
        interview.status = "cancelled"
        return {
            "interview_id": interview_id,
            "status": interview.status,
            "application_id": interview.application_id,
        }

    @write
    def mark_interview_no_show(self, interview_id: str) -> dict[str, Any]:
        """Record that the seeker did not come to a scheduled interview.

        Args:
            interview_id: The interview.

        Returns:
            interview_id, status, application_id, application_status and ended_on.
        """
        interview = self.state.interviews.get(interview_id)
        if interview is None:
            raise ToolError(f"there is no interview {interview_id}; give the id of an existing interview")
        if interview.status != "scheduled":
            raise ToolError(f"{interview_id} is {interview.status}; only a scheduled interview can be marked no_show")
        application = self.state.applications[interview.application_id]
        interview.status = "no_show"
        application.status = "rejected"
        application.ended_on = interview.scheduled_on
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "interview_id": interview_id,
            "status": interview.status,
            "application_id": interview.application_id,
            "application_status": application.status,
            "ended_on": application.ended_on,
        }

    @write
    def make_offer(
        self, application_id: str, salary: int, offered_on: str, expires_on: str, start_on: str
    ) -> dict[str, Any]:
        """Make an offer for an interviewing application.

        Args:
            application_id: The application.
            salary: The salary, from the job's salary_min to 110 percent of its salary_max.
            offered_on: The date of the offer (YYYY-MM-DD).
            expires_on: The last day to accept (YYYY-MM-DD), 3 to 14 days after offered_on.
            start_on: The first day of work (YYYY-MM-DD), 14 to 120 days after expires_on.

        Returns:
            offer_id, application_id, salary, offered_on, expires_on, start_on, status and application_status.
        """
        application = self.state.applications.get(application_id)
        if application is None:
            raise ToolError(f"there is no application {application_id}; give the id of an existing application")
        job_id = application.job_id
        job = self.state.jobs[job_id]
        company = self.state.companies[job.company_id]
        if company.status != "verified":
            raise ToolError(f"{job.company_id} is {company.status}; only a verified company can make an offer")
        if application.status != "interviewing":
            raise ToolError(f"{application_id} is {application.status}; an offer needs an interviewing application")
        completed = []
        for interview_id in sorted(self.state.interviews):
            interview = self.state.interviews[interview_id]
            if interview.application_id != application_id:
                continue
            if interview.status == "scheduled":
                raise ToolError(f"{application_id} has the scheduled interview {interview_id}; complete or cancel it first")
            if interview.status == "completed":
                completed.append(interview)
        if len(completed) < 2:
            raise ToolError(f"{application_id} has {len(completed)} completed interviews; an offer needs at least 2")
        if 2 * sum(interview.score for interview in completed) < 7 * len(completed):
            raise ToolError(f"the average score of {application_id} is below 3.5; an offer needs at least 3.5")
        if salary < job.salary_min:
            raise ToolError(f"salary {salary} is less than the job's salary_min {job.salary_min}; offer more")
        if 100 * salary > 110 * job.salary_max:
            raise ToolError(f"salary {salary} is more than 110 percent of the job's salary_max {job.salary_max}; offer less")
        days: list[date] = []
        for label, value in (("offered_on", offered_on), ("expires_on", expires_on), ("start_on", start_on)):
            if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value) is None:
                raise ToolError(f"{label} {value!r} is not a date; give it as YYYY-MM-DD")
            try:
                days.append(date.fromisoformat(value))
            except ValueError:
                raise ToolError(f"{label} {value!r} is not a date; give it as YYYY-MM-DD")
        offered, expires, start = days
        last = max(date.fromisoformat(interview.scheduled_on) for interview in completed)
        if offered < last:
            raise ToolError(
                f"offered_on {offered_on} is before the last completed interview on {last.isoformat()}; give a later date"
            )
        valid_for = (expires - offered).days
        if valid_for < 3:
            raise ToolError(f"expires_on {expires_on} is less than 3 days after offered_on; give a later date")
        if valid_for > 14:
            raise ToolError(f"expires_on {expires_on} is more than 14 days after offered_on; give an earlier date")
        ahead = (start - expires).days
        if ahead < 14:
            raise ToolError(f"start_on {start_on} is less than 14 days after expires_on; give a later date")
        if ahead > 120:
            raise ToolError(f"start_on {start_on} is more than 120 days after expires_on; give an earlier date")
        hired = sum(
            1 for row in self.state.applications.values() if row.job_id == job_id and row.status == "hired"
        )
        pending = sum(
            1
            for row in self.state.offers.values()
            if row.status == "pending" and self.state.applications[row.application_id].job_id == job_id
        )
        if pending + hired >= job.openings:
            raise ToolError(
                f"{job_id} has {pending} pending offers and {hired} hired applications for {job.openings} openings; "
                "no further offer can be made now"
            )
        offer_id = self.new_id("OF-", 4, taken=self.state.offers)
        self.state.offers[offer_id] = Offer(
            application_id=application_id,
            salary=salary,
            offered_on=offered_on,
            expires_on=expires_on,
            start_on=start_on,
            status="pending",
        )
        application.status = "offered"
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "offer_id": offer_id,
            "application_id": application_id,
            "salary": salary,
            "offered_on": offered_on,
            "expires_on": expires_on,
            "start_on": start_on,
            "status": "pending",
            "application_status": application.status,
        }

    @write
    def accept_offer(self, offer_id: str, accepted_on: str) -> dict[str, Any]:
        """Accept a pending offer at the seeker's wish.

        Args:
            offer_id: The offer.
            accepted_on: The date of the acceptance (YYYY-MM-DD), from offered_on to expires_on.

        Returns:
            offer_id, status, application_id, seeker_id, job_id, job_status, withdrawn_application_ids and
            rejected_application_ids, both lists in the order of the ids.
        """
        offer = self.state.offers.get(offer_id)
        if offer is None:
            raise ToolError(f"there is no offer {offer_id}; give the id of an existing offer")
        if offer.status != "pending":
            raise ToolError(f"{offer_id} is {offer.status}; only a pending offer can be accepted")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", accepted_on) is None:
            raise ToolError(f"accepted_on {accepted_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(accepted_on)
        except ValueError:
            raise ToolError(f"accepted_on {accepted_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(offer.offered_on):
            raise ToolError(f"accepted_on {accepted_on} is before the offer's offered_on {offer.offered_on}; give a later date")
        if day > date.fromisoformat(offer.expires_on):
            raise ToolError(f"accepted_on {accepted_on} is after the offer's expires_on {offer.expires_on}; it cannot be accepted any more")
        application_id = offer.application_id
        application = self.state.applications[application_id]
        seeker_id = application.seeker_id
        seeker = self.state.seekers[seeker_id]
        job_id = application.job_id
        job = self.state.jobs[job_id]
        updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        ongoing = ("submitted", "interviewing", "offered")

        offer.status = "accepted"
        application.status = "hired"
        application.ended_on = accepted_on
        application.updated_at = updated_at
        seeker.status = "hired"

        withdrawn: list[str] = []
        for other_id in sorted(self.state.applications):
            other = self.state.applications[other_id]
            if other_id != application_id and other.seeker_id == seeker_id and other.status in ongoing:
                other.status = "withdrawn"
                other.ended_on = accepted_on
                other.updated_at = updated_at
                withdrawn.append(other_id)
        for other_offer_id in sorted(self.state.offers):
            other_offer = self.state.offers[other_offer_id]
            if other_offer.application_id in withdrawn and other_offer.status == "pending":
                other_offer.status = "declined"
        for saved_job_id in sorted(self.state.saved_jobs):
            if self.state.saved_jobs[saved_job_id].seeker_id == seeker_id:
                del self.state.saved_jobs[saved_job_id]

        rejected: list[str] = []
        hired = sum(
            1 for row in self.state.applications.values() if row.job_id == job_id and row.status == "hired"
        )
        if hired == job.openings:
            job.status = "filled"
            if job.closed_on is None:
                job.closed_on = accepted_on
            for other_id in sorted(self.state.applications):
                other = self.state.applications[other_id]
                if other.job_id == job_id and other.status in ongoing:
                    other.status = "rejected"
                    other.ended_on = accepted_on
                    other.updated_at = updated_at
                    rejected.append(other_id)

        ended = set(withdrawn) | set(rejected)
        for interview_id in sorted(self.state.interviews):
            interview = self.state.interviews[interview_id]
            if interview.application_id in ended and interview.status == "scheduled":
                interview.status = "cancelled"
        return {
            "offer_id": offer_id,
            "status": offer.status,
            "application_id": application_id,
            "seeker_id": seeker_id,
            "job_id": job_id,
            "job_status": job.status,
            "withdrawn_application_ids": withdrawn,
            "rejected_application_ids": rejected,
        }

    @write
    def decline_offer(self, offer_id: str, declined_on: str) -> dict[str, Any]:
        """Decline a pending offer at the seeker's wish.

        Args:
            offer_id: The offer.
            declined_on: The date of the decline (YYYY-MM-DD), from offered_on to expires_on.

        Returns:
            offer_id, status, application_id, application_status and ended_on.
        """
        offer = self.state.offers.get(offer_id)
        if offer is None:
            raise ToolError(f"there is no offer {offer_id}; give the id of an existing offer")
        if offer.status != "pending":
            raise ToolError(f"{offer_id} is {offer.status}; only a pending offer can be declined")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", declined_on) is None:
            raise ToolError(f"declined_on {declined_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(declined_on)
        except ValueError:
            raise ToolError(f"declined_on {declined_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(offer.offered_on):
            raise ToolError(f"declined_on {declined_on} is before the offer's offered_on {offer.offered_on}; give a later date")
        if day > date.fromisoformat(offer.expires_on):
            raise ToolError(f"declined_on {declined_on} is after the offer's expires_on {offer.expires_on}; mark the offer as expired instead")
        application = self.state.applications[offer.application_id]
        offer.status = "declined"
        application.status = "withdrawn"
        application.ended_on = declined_on
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "offer_id": offer_id,
            "status": offer.status,
            "application_id": offer.application_id,
            "application_status": application.status,
            "ended_on": application.ended_on,
        }

    @write
    def rescind_offer(self, offer_id: str, rescinded_on: str) -> dict[str, Any]:
        """Take back a pending offer at the company's wish.

        Args:
            offer_id: The offer.
            rescinded_on: The date on which it is taken back (YYYY-MM-DD), from offered_on to expires_on.

        Returns:
            offer_id, status, application_id, application_status and ended_on.
        """
        offer = self.state.offers.get(offer_id)
        if offer is None:
            raise ToolError(f"there is no offer {offer_id}; give the id of an existing offer")
        if offer.status != "pending":
            raise ToolError(f"{offer_id} is {offer.status}; only a pending offer can be rescinded")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", rescinded_on) is None:
            raise ToolError(f"rescinded_on {rescinded_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(rescinded_on)
        except ValueError:
            raise ToolError(f"rescinded_on {rescinded_on!r} is not a date; give it as YYYY-MM-DD")
        if day < date.fromisoformat(offer.offered_on):
            raise ToolError(f"rescinded_on {rescinded_on} is before the offer's offered_on {offer.offered_on}; give a later date")
        if day > date.fromisoformat(offer.expires_on):
            raise ToolError(f"rescinded_on {rescinded_on} is after the offer's expires_on {offer.expires_on}; mark the offer as expired instead")
        application = self.state.applications[offer.application_id]
        offer.status = "rescinded"
        application.status = "rejected"
        application.ended_on = rescinded_on
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "offer_id": offer_id,
            "status": offer.status,
            "application_id": offer.application_id,
            "application_status": application.status,
            "ended_on": application.ended_on,
        }

    @write
    def expire_offer(self, offer_id: str, expired_on: str) -> dict[str, Any]:
        """Mark a pending offer as expired after its last day.

        Args:
            offer_id: The offer.
            expired_on: The date of the marking (YYYY-MM-DD), after expires_on.

        Returns:
            offer_id, status, application_id, application_status and ended_on.
        """
        offer = self.state.offers.get(offer_id)
        if offer is None:
            raise ToolError(f"there is no offer {offer_id}; give the id of an existing offer")
        if offer.status != "pending":
            raise ToolError(f"{offer_id} is {offer.status}; only a pending offer can be marked expired")
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", expired_on) is None:
            raise ToolError(f"expired_on {expired_on!r} is not a date; give it as YYYY-MM-DD")
        try:
            day = date.fromisoformat(expired_on)
        except ValueError:
            raise ToolError(f"expired_on {expired_on!r} is not a date; give it as YYYY-MM-DD")
        if day <= date.fromisoformat(offer.expires_on):
            raise ToolError(f"expired_on {expired_on} is not after the offer's expires_on {offer.expires_on}; give a later date")
        application = self.state.applications[offer.application_id]
        offer.status = "expired"
        application.status = "withdrawn"
        application.ended_on = expired_on
        application.updated_at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "offer_id": offer_id,
            "status": offer.status,
            "application_id": offer.application_id,
            "application_status": application.status,
            "ended_on": application.ended_on,
        }
